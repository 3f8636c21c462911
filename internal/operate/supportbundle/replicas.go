package supportbundle

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"

	"github.com/mapd-project/mapd/internal/cluster/history"
	"github.com/mapd-project/mapd/internal/operate/replicas"
)

// maxSampled bounds the policies of which a bundle has samples. Those that would have changed the
// most objects come first.
const maxSampled = 20

// Replicas reads records, metrics and readiness from mapd's replicas.
type Replicas interface {
	// Ask returns the records of that name of all replicas; see replicas.Ask.
	Ask(ctx context.Context, name string, query url.Values) ([]replicas.Answer[json.RawMessage], error)
	// Read returns a page of the replicas for whose names keep returns true; see replicas.Read.
	Read(ctx context.Context, page string, keep func(replica string) bool) []replicas.Answer[[]byte]
}

// Found implements Replicas with a replicas.Set.
type Found struct{ Set *replicas.Set }

// Ask implements Replicas.
func (f Found) Ask(ctx context.Context, name string, query url.Values) ([]replicas.Answer[json.RawMessage], error) {
	return replicas.Ask[json.RawMessage](ctx, f.Set, name, query)
}

// Read implements Replicas.
func (f Found) Read(ctx context.Context, page string, keep func(replica string) bool) []replicas.Answer[[]byte] {
	return replicas.Read(ctx, f.Set, page, keep)
}

// replicas adds each replica's counts and samples of policies. It also adds metrics and readiness
// of replicas that are not among pods, since the method pod has added those of pods.
func (b *builder) replicas(ctx context.Context, pods []map[string]any) {
	if b.Replicas == nil {
		return
	}
	found, err := b.Replicas(ctx)
	if err != nil {
		b.missing("records of replicas", err)
		return
	}
	for _, page := range []struct{ path, file string }{{"/metrics", "metrics.txt"}, {"/readyz?verbose", "readyz.txt"}} {
		for _, a := range found.Read(ctx, page.path, func(replica string) bool {
			return !slices.ContainsFunc(pods, func(o map[string]any) bool { return nameOf(o) == replica })
		}) {
			if a.Err != nil {
				b.missing(fileName(a.Replica)+"/"+page.file, a.Err)
			} else {
				b.add(fileName(a.Replica)+"/"+page.file, a.Value, false)
			}
		}
	}
	answers, err := found.Ask(ctx, history.CountsName, nil)
	if err != nil {
		b.missing("records of replicas", err)
		return
	}
	would := map[string]uint64{}
	for _, a := range answers {
		var counts history.CountsAnswer
		if !b.addAnswer(a, "counts.json", &counts, func() any { return &counts }) {
			continue
		}
		for _, c := range counts.Counts {
			if c.Would > 0 {
				would[c.Policy] += c.Would
			}
		}
	}
	b.samples(ctx, found, would)
}

// samples adds which fields policies in shadow or warn would have changed of some objects.
func (b *builder) samples(ctx context.Context, found Replicas, would map[string]uint64) {
	policies := make([]string, 0, len(would))
	for name := range would {
		policies = append(policies, name)
	}
	slices.SortFunc(policies, func(a, c string) int { return cmp.Or(cmp.Compare(would[c], would[a]), cmp.Compare(a, c)) })
	if more := len(policies) - maxSampled; more > 0 {
		policies = policies[:maxSampled]
		b.missing(fmt.Sprintf("samples of %d more policies", more), fmt.Errorf("a bundle has those of at most %d", maxSampled))
	}
	for i, name := range policies {
		answers, err := found.Ask(ctx, history.SamplesName, url.Values{"policy": {name}})
		if err != nil {
			b.missing("samples of "+name, err)
			continue
		}
		for _, a := range answers {
			var all history.SamplesAnswer
			b.addAnswer(a, fmt.Sprintf("samples-%d.json", i+1), &all, func() any { return samplesOf(&all) })
		}
	}
}

// addAnswer decodes the answer of a replica into the value that into points to, and adds a file
// with what shown then returns. It reports whether the replica's answer could be added.
func (b *builder) addAnswer(a replicas.Answer[json.RawMessage], name string, into any, shown func() any) bool {
	file, err := fileName(a.Replica)+"/"+name, a.Err
	if err == nil {
		err = json.Unmarshal(a.Value, into)
	}
	var text []byte
	if err == nil {
		text, err = json.MarshalIndent(shown(), "", "  ")
	}
	if err != nil {
		b.missing(file, err)
		return false
	}
	b.add(file, append(text, '\n'), false)
	return true
}

// sampled is a history.Sample without values.
type sampled struct {
	history.Sample
	Changes []changed `json:"changes"`
}

type changed struct {
	Path string `json:"path"`
	// How is added, removed, changed or moved.
	How string `json:"how"`
}

type samplesShown struct {
	history.Header
	Samples []sampled `json:"samples"`
	More    int       `json:"more,omitempty"`
}

// samplesOf returns samples without values of objects: a replica masks only the values of
// Secrets.
func samplesOf(all *history.SamplesAnswer) *samplesShown {
	out := &samplesShown{Header: all.Header, Samples: []sampled{}, More: all.More}
	for _, s := range all.Samples {
		if s == nil {
			continue
		}
		one := sampled{Sample: *s, Changes: []changed{}}
		var changes []history.Change
		if json.Unmarshal(s.Changes, &changes) != nil {
			one.More++
		}
		for _, c := range changes {
			how := "changed"
			switch {
			case c.Moved:
				how = "moved"
			case c.Before == nil:
				how = "added"
			case c.After == nil:
				how = "removed"
			}
			one.Changes = append(one.Changes, changed{c.Path, how})
		}
		out.Samples = append(out.Samples, one)
	}
	return out
}

// unusual matches characters that names of files in a bundle do not have.
var unusual = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// fileName returns the name of the directory for a replica, whose name is that of its Pod or a
// URL.
func fileName(replica string) string { return unusual.ReplaceAllString(replica, "-") }
