package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/test/fakeapi"
)

// served returns the policies of a text, each in its mode.
func served(t *testing.T, text string) *Set {
	t.Helper()
	docs, errs := manifest.ReadAll([]manifest.Input{{Name: "served.yaml", Open: opener(text)}}, func(*manifest.Document) {})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	built, errs := policyset.Build(docs, policyset.Options{Env: must(cel.NewEnv(cel.Options{}))})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return Served(built.Engine(), built.Types)
}

const shadowed = "\nmetadata: {name: quiet, annotations: {mapd.dev/mode: shadow}}\nspec: {policyName"

// repeated is what a Repeater has said.
type repeated struct {
	*Repeater

	mu        sync.Mutex
	published []*Finished
	written   []map[string]string
}

// said returns what was published and written so far.
func (r *repeated) said() ([]*Finished, []map[string]string) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.published), slices.Clone(r.written)
}

func (r *repeated) publish(f *Finished) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.published = append(r.published, f)
}

func (r *repeated) write(_ context.Context, data map[string]string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written = append(r.written, data)
	return nil
}

func repeater(t *testing.T, s *fakeapi.Server) *repeated {
	set := served(t, labels("team", "configmaps", `object.metadata.name == "m0001" ? string(1/int(object.data.n)) + string(1/0) : "a"`)+"\n---\n"+
		strings.Replace(labels("quiet", "configmaps", `"b"`), "\nmetadata: {name: quiet}\nspec: {policyName", shadowed, 1)+"\n---\n"+
		labels("hidden", "secrets", `"c"`))
	r := &repeated{Repeater: &Repeater{
		Every: time.Hour, Config: s.Config(), Set: func() *Set { return set },
		Asking: Asking{Operation: admissionv1.Update, Exempt: []string{"kube-system"}, Timeout: time.Minute, Memory: memory.New(64 << 20)},
	}}
	r.Publish = r.publish
	return r
}

// start runs it until the function that it returns is called.
func (r *repeated) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.Run(ctx, r.write)
	}()
	return func() { cancel(); <-over }
}

// An audit begins soon after the Lease is held, and again after each interval. A policy in
// shadow counts as that, a kind that may not be read is named, and nothing has values of
// objects.
func TestRepeat(t *testing.T) {
	s := serve()
	fill(t, s, 3)
	s.Put(secrets, "a", "s", map[string]any{"data": map[string]any{"password": "aGlkZGVu"}})
	s.Intercept = func(r fakeapi.Request) (map[string]any, error) {
		if r.Resource == secrets {
			return nil, apierrors.NewForbidden(secrets.GroupResource(), "", errors.New("no"))
		}
		return nil, nil
	}
	r := repeater(t, s)
	synctest.Test(t, func(t *testing.T) {
		stop := r.start(t)
		time.Sleep(repeatDelay)
		if published, _ := r.said(); len(published) != 0 {
			t.Error("an audit has ended while replicas may still change places")
		}
		time.Sleep(time.Minute)
		published, written := r.said()
		if len(published) != 1 || len(written) != 1 {
			t.Fatalf("%d audits, %d written", len(published), len(written))
		}
		f := published[0]
		if f.Objects != 3 || f.Changed != 2 || f.Failed != 1 || f.Unreadable() != 1 {
			t.Errorf("got %+v", f.Totals)
		}
		got := map[string]string{}
		for _, p := range f.Policies {
			got[p.Policy] = fmt.Sprint(p.Mode, " ", p.Changed, " ", p.Failed)
		}
		// Where the policy team refuses the object, the one in shadow still sees it.
		if got["team"] != " 2 1" || !strings.HasPrefix(got["quiet"], "shadow ") || len(got) != 2 {
			t.Errorf("policies %q", got)
		}
		data := written[0]
		for key, want := range map[string]string{
			"summary":  "3 objects evaluated: 2 would change, 1 would be denied, for 1 a policy fails; 1 kind could not be read",
			"kinds":    "ConfigMap  configmaps  3        2        1       1",
			"policies": "quiet   quiet    shadow",
			"fields":   "team    team     metadata.labels.team",
			"problems": "not read: secrets: secrets is forbidden",
		} {
			if !strings.Contains(data[key], want) {
				t.Errorf("%s has no %q:\n%s", key, want, data[key])
			}
		}
		time.Sleep(2 * time.Hour)
		if published, written = r.said(); len(published) != 3 || len(written) != 3 {
			t.Errorf("%d audits after two hours more", len(published))
		}
		stop()
		if published, _ = r.said(); len(published) != 4 || published[3] != nil {
			t.Error("the totals of a replica that lost the Lease stay")
		}
	})
	for _, w := range s.Writes() {
		t.Errorf("written: %s", w)
	}
}

// When the Lease is lost an audit ends where it is: in the midst of a list, while it is
// asked to wait, and while a ConfigMap is written.
func TestRepeatEnds(t *testing.T) {
	s := serve()
	fill(t, s, 300)
	r := repeater(t, s)
	synctest.Test(t, func(t *testing.T) {
		lists := 0
		var stop context.CancelFunc
		s.Intercept = func(q fakeapi.Request) (map[string]any, error) {
			if q.Resource == configMaps {
				if lists++; lists == 2 {
					stop()
				}
			}
			return nil, nil
		}
		var ctx context.Context
		ctx, stop = context.WithCancel(t.Context())
		r.Run(ctx, func(context.Context, map[string]string) error {
			t.Error("written")
			return nil
		})
		if published, _ := r.said(); lists != 2 || len(published) != 1 || published[0] != nil {
			t.Errorf("%d lists, %v published", lists, published)
		}
		// A server that is not there.
		s.Intercept = func(fakeapi.Request) (map[string]any, error) { return nil, apierrors.NewTooManyRequests("later", 30) }
		stop = r.start(t)
		time.Sleep(10 * time.Minute)
		began := time.Now()
		stop()
		if d := time.Since(began); d > 0 {
			t.Errorf("ended after %s", d)
		}
		// A ConfigMap that is not written.
		s.Intercept = nil
		ctx, stop = context.WithCancel(t.Context())
		tries := 0
		r.Run(ctx, func(context.Context, map[string]string) error {
			if tries++; tries == 3 {
				stop()
			}
			return errors.New("no")
		})
		if tries != 3 {
			t.Errorf("%d tries", tries)
		}
	})
}

// While the policies are not known, and after a failure, an audit is tried again sooner than
// after the interval.
func TestRepeatRetries(t *testing.T) {
	s := serve()
	fill(t, s, 2)
	r := repeater(t, s)
	set, calls := r.Set(), 0
	r.Set = func() *Set {
		if calls++; calls < 4 {
			return nil
		}
		return set
	}
	synctest.Test(t, func(t *testing.T) {
		stop := r.start(t)
		time.Sleep(repeatRetry + 2*repeatRetry + 4*repeatRetry + time.Minute)
		stop()
	})
	if calls != 4 || len(r.written) != 1 { // it has ended
		t.Errorf("%d tries, %d written", calls, len(r.written))
	}
}

// filed are the Reports of audits: a name for each result.
type filed struct{ names *[]string }

func (f filed) Add(r *Result) { *f.names = append(*f.names, r.Name) }

func (f filed) Write(_ context.Context, c *Cluster, done *Finished) (string, error) {
	if len(c.Resources) == 0 || done.Changed != len(*f.names) || done.Ended.IsZero() {
		return "", fmt.Errorf("%d names, %+v", len(*f.names), done)
	}
	return fmt.Sprintf("%d written", len(*f.names)), errors.New("but\nnot all")
}

// Each audit has Reports of its own, which take all of its results, and what became of them is
// in the ConfigMap.
func TestRepeatReports(t *testing.T) {
	s := serve()
	fill(t, s, 300)
	r := repeater(t, s)
	r.Set = func() *Set { return served(t, labels("team", "configmaps", `"a"`)) }
	var all []*[]string
	r.Reports = func() Reports {
		all = append(all, &[]string{})
		return filed{all[len(all)-1]}
	}
	synctest.Test(t, func(t *testing.T) {
		stop := r.start(t)
		time.Sleep(90 * time.Minute)
		stop()
	})
	if len(all) != 2 || len(*all[0]) != 300 || len(*all[1]) != 300 || len(r.written) != 2 || r.written[1]["reports"] != "300 written\nbut not all\n" {
		t.Errorf("%d audits, %q", len(all), r.written)
	}
}

// Data fits into a ConfigMap and is lines of text, whatever names and messages are.
func TestDataIsBounded(t *testing.T) {
	hostile := strings.Repeat("é\n\r\x1b[31m|\t\xff`", 25)
	f := &Finished{Report: &Report{}, Ended: time.Unix(0, 0)}
	for i := range 3 * maxRows {
		kind := KindTotal{Kind: hostile, Resource: hostile + fmt.Sprint(i), Objects: i}
		if i%2 == 0 {
			kind.Unreadable = hostile
		}
		f.Kinds = append(f.Kinds, kind)
		f.Notes = append(f.Notes, strings.Repeat(hostile, 10))
		f.Totals.add(&KindTotal{}, &Result{By: []Actor{{Policy: hostile + fmt.Sprint(i), Binding: hostile, Mode: "shadow", Error: "the password is hunter2", Fields: []string{hostile}}}})
	}
	f.OtherFields = 7
	data := f.Data()
	size := 0
	for name, text := range data {
		size += len(name) + len(text)
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }) {
			t.Errorf("%s has characters that are not for people: %.100q", name, text)
		}
		if strings.Contains(text, "hunter2") {
			t.Errorf("%s has what a policy says of an object", name)
		}
		if name != "summary" && !strings.Contains(text[strings.LastIndexByte(strings.TrimSuffix(text, "\n"), '\n')+1:], " more\n") {
			t.Errorf("%s does not say that there is more: it ends with %.100q", name, text[max(0, len(text)-100):])
		}
	}
	if size > 1_000_000 || len(data) != 5 {
		t.Errorf("%d bytes in %d texts", size, len(data))
	}
	if text := cutLines(strings.Repeat("x", 2*maxData)+"\n", 1); text != "and 1 more\n" {
		t.Errorf("a line that is too long becomes %.100q", text)
	}
	if data := (&Finished{Report: &Report{}}).Data(); len(data) != 1 || !strings.Contains(data["summary"], "0 objects evaluated") {
		t.Errorf("of nothing: %q", data)
	}
}
