package history

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/hammer"
)

var podKind = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}

// request is one about a Pod with that metadata.
func request(namespace, name string, metadata map[string]any) *policy.Request {
	if metadata == nil {
		metadata = map[string]any{}
	}
	return &policy.Request{
		Kind: podKind, Namespace: namespace, Name: name, Operation: "CREATE",
		Object: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": metadata}},
	}
}

// changed is a step that set the labels of these names.
func changed(policyName, bindingName string, labels ...string) engine.Step {
	set := map[string]any{}
	for _, l := range labels {
		set[l] = "value"
	}
	return engine.Step{
		Stage: "policies", Policy: policyName, Binding: bindingName, Outcome: engine.Changed, Duration: time.Millisecond,
		Before: &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"labels": map[string]any{}}}},
		After:  &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"labels": set}}},
	}
}

func step(policyName, bindingName string, outcome engine.Outcome) engine.Step {
	s := engine.Step{Stage: "policies", Policy: policyName, Binding: bindingName, Outcome: outcome, Duration: time.Millisecond}
	if outcome == engine.Failed {
		s.Err = errors.New("secret value")
	}
	return s
}

// decided is a decision of one stage that is on.
func decided(steps ...engine.Step) *engine.Decision {
	stage := engine.Policies(nil)
	d := &engine.Decision{Steps: steps, Stages: []engine.Record{{Stage: &stage, Steps: steps}}}
	d.Changed = slices.ContainsFunc(steps, func(s engine.Step) bool { return s.Outcome == engine.Changed })
	return d
}

func counts(l *Recorder) string {
	var b strings.Builder
	for _, c := range l.Counts() {
		last := ""
		if c.Last != nil {
			last = fmt.Sprintf(" %s %s/%s %v+%d", c.Last.Kind, c.Last.Namespace, c.Last.Name, c.Last.Fields, c.Last.More)
		}
		fmt.Fprintf(&b, "%s %s %s: seen %d, would %d, changed %d, failed %d, left out %d, %v%s\n", c.Policy, c.Binding, c.Mode, c.Seen, c.Would, c.Changed, c.Failed, c.LeftOut, c.Time, last)
	}
	return b.String()
}

func TestCounts(t *testing.T) {
	l := New("a")
	l.Record(request("shop", "none", nil), &engine.Decision{}, 0)
	l.Record(request("shop", "web", nil), decided(changed("p", "b", "x"), step("p", "c", engine.Skipped), step("q", "d", engine.Unchanged), changed("p", "b", "y")), 0)
	l.Record(request("shop", "db", nil), decided(step("p", "b", engine.Failed), step("q", "d", engine.Failed), step("q", "d", engine.Unchanged), step("q", "", engine.Failed)), 0)
	shadow := engine.Mutators(nil, api.Shadow)
	l.Record(request("shop", "web", nil), &engine.Decision{Stages: []engine.Record{{Stage: &shadow, Steps: []engine.Step{changed("Assign/a", "", "x")}}}}, 0)
	want := `Assign/a  shadow: seen 1, would 1, changed 0, failed 0, left out 0, 1ms Pod shop/web [/metadata/labels/x]+0
p b enforce: seen 2, would 0, changed 1, failed 1, left out 0, 3ms Pod shop/web [/metadata/labels/x]+0
p c enforce: seen 0, would 0, changed 0, failed 0, left out 0, 1ms
q  enforce: seen 1, would 0, changed 0, failed 1, left out 0, 1ms
q d enforce: seen 2, would 0, changed 0, failed 1, left out 0, 3ms
`
	if diff := cmp.Diff(want, counts(l)); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
	l.Prune(func(policy, _ string) bool { return policy == "q" })
	if got := counts(l); strings.Contains(got, "p b") || !strings.Contains(got, "q d") {
		t.Errorf("after Prune:\n%s", got)
	}
	l.Record(request("shop", "web", nil), decided(changed("p", "b", "x")), 0)
	if got := counts(l); !strings.Contains(got, "p b enforce: seen 1, ") {
		t.Errorf("counted again:\n%s", got)
	}
}

// An example stays for a second, and is then that of the next change.
// The counts of each mode are apart, and what a share leaves out counts once for each
// request, also if no policy ran.
func TestCountsOfModesAndShares(t *testing.T) {
	l := New("a")
	out := func(mode api.Mode) binding.LeftOut { return binding.LeftOut{Policy: "p", Binding: "b", Mode: mode} }
	l.Record(request("shop", "web", nil), shadowed(shadow(api.Shadow, Pair{"p", "b"}, map[string]any{}, map[string]any{"x": "y"})), 0)
	l.Record(request("shop", "web", nil), &engine.Decision{LeftOut: []binding.LeftOut{out(api.Shadow), out(api.Shadow)}}, 0)
	l.Record(request("shop", "web", nil), &engine.Decision{LeftOut: []binding.LeftOut{out(api.Enforce)}}, 0)
	both := decided(changed("p", "b", "x"))
	excepted := binding.LeftOut{Policy: "q", Binding: "b", Exception: &binding.Exception{}}
	both.LeftOut = []binding.LeftOut{{Policy: "q", Binding: "b", Mode: api.Warn}, excepted, excepted}
	l.Record(request("shop", "web", nil), both, 0)
	lines := func(all []Counted) (got []string) {
		for _, c := range all {
			got = append(got, fmt.Sprintf("%s %q: seen %d, would %d, changed %d, left out %d, excepted %d", c.Policy, c.Mode, c.Seen, c.Would, c.Changed, c.LeftOut, c.Excepted))
		}
		return got
	}
	want := []string{
		`p "enforce": seen 1, would 0, changed 1, left out 1, excepted 0`,
		`p "shadow": seen 1, would 1, changed 0, left out 1, excepted 0`,
		`q "enforce": seen 0, would 0, changed 0, left out 0, excepted 1`,
		`q "warn": seen 0, would 0, changed 0, left out 1, excepted 0`,
	}
	if diff := cmp.Diff(want, lines(l.Counts())); diff != "" {
		t.Errorf("Counts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{`p "": seen 2, would 1, changed 1, left out 0, excepted 0`}, lines(l.Totals())); diff != "" {
		t.Errorf("Totals (-want +got):\n%s", diff)
	}
}

func TestExample(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New("a")
		last := func(want string) {
			t.Helper()
			if got := counts(l); !strings.Contains(got, want) {
				t.Errorf("got %s", got)
			}
		}
		l.Record(request("shop", "first", nil), decided(changed("p", "b", "x")), 0)
		l.Record(request("shop", "second", nil), decided(changed("p", "b", "x")), 0)
		last("shop/first")
		time.Sleep(exampleEvery)
		l.Record(request("shop", "", map[string]any{"generateName": "web-"}), decided(changed("p", "b", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")), 0)
		last("shop/web- [/metadata/labels/a")
		last("h]+2")
	})
}

func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New("a")
		owned := map[string]any{"generateName": "web-", "ownerReferences": []any{map[string]any{"uid": "no"}, map[string]any{"uid": "rs", "controller": true}}}
		l.Record(request("shop", "", owned), decided(changed("p", "b", "x"), step("q", "c", engine.Unchanged), changed("r", "d", "y", "z")), 0)
		time.Sleep(time.Minute)
		update := request("shop", "web-1", map[string]any{"name": "web-1", "uid": "1"})
		update.Operation, update.SubResource = "UPDATE", "status"
		l.Record(update, decided(changed("p", "b", "x")), 0)

		// Nothing of these is stored, or was changed.
		dry := request("shop", "web-1", nil)
		dry.DryRun = true
		l.Record(dry, decided(changed("p", "b", "dry")), 0)
		denied := decided(changed("p", "b", "denied"))
		denied.Status = &metav1.Status{}
		l.Record(request("shop", "web-1", nil), denied, 0)
		l.Record(request("shop", "web-1", nil), decided(step("p", "b", engine.Unchanged)), 0)
		// Other objects.
		l.Record(request("other", "web-1", nil), decided(changed("p", "b", "namespace")), 0)
		l.Record(request("shop", "web", nil), decided(changed("p", "b", "name")), 0)
		l.Record(request("shop", "web-1", map[string]any{"uid": "2"}), decided(changed("p", "b", "uid")), 0)

		at := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		want := []Entry{
			{Time: at.Add(time.Minute), UID: "1", Version: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1", Operation: "UPDATE", SubResource: "status",
				Acts: []Act{{Stage: "policies", Policy: "p", Binding: "b", Paths: []string{"/metadata/labels/x"}}}},
			{Time: at, Owner: "rs", Version: "v1", Kind: "Pod", Namespace: "shop", GenerateName: "web-", Operation: "CREATE", Acts: []Act{
				{Stage: "policies", Policy: "p", Binding: "b", Paths: []string{"/metadata/labels/x"}},
				{Stage: "policies", Policy: "r", Binding: "d", Paths: []string{"/metadata/labels/y", "/metadata/labels/z"}},
			}},
		}
		q := Query{GroupKind: metav1.GroupKind{Kind: "Pod"}, Namespace: "shop", Name: "web-1", UID: "1", Owner: "rs"}
		found, more := l.Entries(q)
		if diff := cmp.Diff(want, found); diff != "" || more != 0 {
			t.Errorf("%d more (- want, + got):\n%s", more, diff)
		}
		q.Owner = "another"
		if found, _ := l.Entries(q); len(found) != 1 {
			t.Errorf("of another owner: %v", found)
		}
		q.UID = ""
		if found, _ := l.Entries(q); len(found) != 2 {
			t.Errorf("of any uid: %v", found)
		}
		q.Kind = "Deployment"
		if found, _ := l.Entries(q); len(found) != 0 {
			t.Errorf("of another kind: %v", found)
		}
	})
}

// What tenants write makes neither counts nor history grow without bound, and what one
// namespace writes displaces nothing of one that is in another part.
func TestUnderAttack(t *testing.T) {
	l := New("a")
	long := strings.Repeat("é", maxText)
	l.Record(request("quiet", "web", nil), decided(changed("p", "b", "x")), 0)
	loud := "loud"
	for i := 0; l.history.part(loud) == l.history.part("quiet"); i++ {
		loud = fmt.Sprintf("loud-%d", i)
	}
	names := make([]string, 20)
	for i := range names {
		names[i] = fmt.Sprintf("%s%d", long, i)
	}
	big := decided(slices.Repeat([]engine.Step{changed("big", "b", names...)}, 2*maxActs)...)
	for i := range 12 {
		l.Record(request(loud, fmt.Sprintf("x%d", i), map[string]any{"uid": long, "generateName": long}), big, 0)
	}
	size := 0
	for i := range l.history.parts {
		size += cap(l.history.parts[i].new) + cap(l.history.parts[i].old)
	}
	if p := l.history.part(loud); size > historyBytes/historyParts*5/4+1<<10 || len(p.old) == 0 {
		t.Errorf("%d bytes of history", size)
	}
	if found, _ := l.Entries(Query{GroupKind: metav1.GroupKind{Kind: "Pod"}, Namespace: "quiet", Name: "web"}); len(found) != 1 {
		t.Errorf("the entry of another namespace is gone: %v", found)
	}
	found, _ := l.Entries(Query{GroupKind: metav1.GroupKind{Kind: "Pod"}, Namespace: loud, Name: "x11"})
	if len(found) != 1 || len(found[0].Acts) != maxActs || found[0].More != maxActs || len(found[0].Acts[0].Paths) != maxPaths || found[0].Acts[0].More != 20-maxPaths {
		t.Errorf("%d entries", len(found))
	}
	if last := l.Counts()[0].Last; len(last.Fields) != 1 || len(last.Fields[0]) > maxText+3 {
		t.Errorf("example %v", last)
	}

	for i := range maxAnswer + 5 {
		l.Record(request("quiet", "web", nil), decided(changed("p", "b", fmt.Sprint(i))), 0)
	}
	if found, more := l.Entries(Query{GroupKind: metav1.GroupKind{Kind: "Pod"}, Namespace: "quiet", Name: "web"}); len(found) != maxAnswer || more != 6 ||
		found[0].Acts[0].Paths[0] != fmt.Sprintf("/metadata/labels/%d", maxAnswer+4) {
		t.Errorf("%d entries and %d more", len(found), more)
	}
	for i := range maxPairs + 10 {
		l.Record(request("quiet", "web", nil), decided(step("p", fmt.Sprint(i), engine.Unchanged)), 0)
	}
	if n := len(l.Counts()); n != maxPairs {
		t.Errorf("%d pairs", n)
	}
}

func TestGet(t *testing.T) {
	l := New("a")
	l.Record(request("shop", "web", nil), decided(changed("p", "b", "x")), 0)
	for _, tt := range []struct {
		name  string
		query map[string][]string
		want  string
	}{
		{"counts", nil, "{a [{p b} {1 0 1 0 0 0 1ms}]}"},
		{"blame", map[string][]string{"kind": {"Pod"}, "namespace": {"shop"}, "name": {"web"}}, "{a [p]}"},
		{"samples", map[string][]string{"policy": {"p"}}, "{a 0}"},
		{"samples", nil, "the query needs policy"},
		{"blame", map[string][]string{"kind": {"Pod"}}, "the query needs kind and name"},
		{"nothing", nil, "there are no records of that name"},
	} {
		answer, err := l.Get(tt.name, tt.query)
		got := fmt.Sprint(err)
		switch a := answer.(type) {
		case CountsAnswer:
			got = fmt.Sprintf("{%s [%v %v]}", a.Replica, a.Counts[0].Pair, a.Counts[0].Counts)
		case SamplesAnswer:
			got = fmt.Sprintf("{%s %d}", a.Replica, len(a.Samples))
		case BlameAnswer:
			got = fmt.Sprintf("{%s [%s]}", a.Replica, a.Entries[0].Acts[0].Policy)
		}
		if got != tt.want {
			t.Errorf("%s: %s", tt.name, got)
		}
	}
}

func TestConcurrently(t *testing.T) {
	l := New("a")
	hammer.Run(4, 50, func(p, n int) {
		l.Record(request("shop", fmt.Sprint(n), nil), decided(changed("p", fmt.Sprint(p), "x"), changed("q", "b", "y")), 0)
		if n%10 == 0 {
			l.Prune(func(policy, _ string) bool { return policy == "q" })
		}
		l.Counts()
		l.Entries(Query{GroupKind: metav1.GroupKind{Kind: "Pod"}, Namespace: "shop", Name: "1"})
	})
	counted := uint64(0)
	for _, c := range l.Counts() {
		if c.Policy == "q" {
			counted += c.Changed
		}
	}
	if counted != 200 {
		t.Errorf("%d of 200 are counted", counted)
	}
}

// shadowed is a decision of policies that are not enforced.
func shadowed(shadows ...engine.Shadow) *engine.Decision {
	d := decided()
	d.Stages[0].Shadows = shadows
	return d
}

func shadow(mode api.Mode, p Pair, before, after map[string]any, steps ...engine.Step) engine.Shadow {
	s := engine.Shadow{Mode: mode, Policy: p.Policy, Binding: p.Binding, Steps: steps, Before: &unstructured.Unstructured{Object: before}}
	if s.After = s.Before; after != nil {
		s.After = &unstructured.Unstructured{Object: after}
	}
	return s
}

func TestShadows(t *testing.T) {
	l := New("a")
	l.Record(request("shop", "web", nil), shadowed(
		shadow(api.Shadow, Pair{"p", "b"}, map[string]any{"a": "1"}, map[string]any{"a": "2"}, changed("p", "b", "x")),
		shadow(api.Shadow, Pair{"p", "b"}, map[string]any{"a": "1"}, map[string]any{"a": "3"}, changed("p", "b", "y")),  // another parameter
		shadow(api.Warn, Pair{"q", "b"}, map[string]any{"a": "1"}, nil, changed("q", "b", "x"), changed("q", "b", "x")), // there and back
		shadow(api.Warn, Pair{"r", "b"}, map[string]any{"a": "1"}, nil, step("r", "b", engine.Failed)),
		shadow(api.Warn, Pair{"s", "b"}, map[string]any{"a": "1"}, nil, step("s", "b", engine.Skipped)),
	), 0)
	want := `p b shadow: seen 1, would 1, changed 0, failed 0, left out 0, 2ms Pod shop/web [/metadata/labels/x]+0
q b warn: seen 1, would 0, changed 0, failed 0, left out 0, 2ms
r b warn: seen 1, would 0, changed 0, failed 1, left out 0, 1ms
s b warn: seen 0, would 0, changed 0, failed 0, left out 0, 1ms
`
	if diff := cmp.Diff(want, counts(l)); diff != "" {
		t.Errorf("(- want, + got):\n%s", diff)
	}
	if found, _ := l.samples.of("p"); len(found) != 2 || string(found[1].Changes) != `[{"path":"a","before":"1","after":"2"}]` || found[0].Mode != "shadow" || found[0].Name != "web" {
		t.Errorf("samples %v", found)
	}
	if found, _ := l.Entries(Query{GroupKind: metav1.GroupKind{Kind: "Pod"}, Namespace: "shop", Name: "web"}); len(found) != 0 {
		t.Errorf("a policy in shadow is blamed: %v", found)
	}
	l.Prune(func(string, string) bool { return false })
	if len(l.samples.all)+len(l.samples.full)+len(l.Counts()) > 0 {
		t.Error("something of removed policies stays")
	}
}

func TestSamplesOfSecrets(t *testing.T) {
	l := New("a")
	req := request("shop", "key", nil)
	req.Kind.Kind = "Secret"
	l.Record(req, shadowed(shadow(api.Shadow, Pair{"p", "b"}, map[string]any{"data": map[string]any{"k": "b2xk"}}, map[string]any{"data": map[string]any{"k": "bmV3"}})), 0)
	found, _ := l.samples.of("p")
	if len(found) != 1 || string(found[0].Changes) != `[{"path":"data.k","before":"*** (before)","after":"*** (after)"}]` {
		t.Errorf("%s", found[0].Changes)
	}
}

// Samples are bounded by number and length, and take turns.
func TestSamplesUnderAttack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New("a")
		long := strings.Repeat("x", maxValue)
		huge := map[string]any{}
		for i := range 200 {
			huge[fmt.Sprintf("%s%03d", long, i)] = strings.Repeat("x", maxValue/2)
		}
		huge["value"] = long
		record := func(i int, binding string) {
			l.Record(request(long, fmt.Sprint(i), nil), shadowed(shadow(api.Shadow, Pair{"p", binding}, map[string]any{}, huge)), 0)
		}
		for i := range 100 {
			record(i, "b")
		}
		found, _ := l.samples.of("p")
		if len(found) != pairSamples || found[0].Name != fmt.Sprint(pairSamples-1) {
			t.Fatalf("%d samples", len(found))
		}
		if f := found[0]; len(f.Changes) > maxSample+2 || f.More == 0 || len(f.Namespace) != maxText {
			t.Errorf("a sample of %d bytes, %d changes left out", len(f.Changes), f.More)
		}
		time.Sleep(sampleEvery)
		record(100, "b")
		record(101, "b")
		if found, _ = l.samples.of("p"); len(found) != pairSamples || found[0].Name != "100" {
			t.Errorf("%d samples, the last of %s", len(found), found[0].Name)
		}
		small := map[string]any{"a": "b"}
		for i := range maxSamples + 10 {
			l.Record(request("shop", "web", nil), shadowed(shadow(api.Shadow, Pair{"p", fmt.Sprint(i)}, map[string]any{}, small)), 0)
		}
		if found, more := l.samples.of("p"); len(l.samples.all) != maxSamples || len(found) != maxSampleAnswer || more != maxSamples-maxSampleAnswer || len(l.samples.full) > 19 {
			t.Errorf("%d samples, %d found and %d more, %d full", len(l.samples.all), len(found), more, len(l.samples.full))
		}
		// Once there are all, a pair whose samples others have displaced has a new one each time, but not one for each request.
		last := l.samples.all[maxSamples-1]
		for range 3 {
			record(102, "other")
			record(103, "other")
			if l.samples.all[maxSamples-1] == last || l.samples.all[maxSamples-1].Name != "102" {
				t.Errorf("the last sample is of %s", l.samples.all[maxSamples-1].Name)
			}
			last = l.samples.all[maxSamples-1]
			time.Sleep(sampleEvery)
		}
	})
}
