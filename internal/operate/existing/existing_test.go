package existing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/test/fakeapi"
)

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	pods        = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	replicaSets = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
)

// A decoder of schemas that all tests share must not belong to the bubble of one.
func TestMain(m *testing.M) {
	kind, err := openapi.New(openapi.Builtin()).Kind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	if err != nil {
		panic(err)
	}
	if of, _ := kind.Schema(); of == nil {
		panic("no schema of Deployments")
	}
	os.Exit(m.Run())
}

func server() *fakeapi.Server {
	resource := func(name, kind string) map[string]any {
		return map[string]any{"name": name, "kind": kind, "namespaced": true, "verbs": []any{"list", "get", "update"}}
	}
	return &fakeapi.Server{Discovery: map[string]map[string]any{
		"/api": {"kind": "APIVersions", "versions": []any{"v1"}},
		"/apis": {"kind": "APIGroupList", "groups": []any{map[string]any{
			"name": "apps", "versions": []any{map[string]any{"groupVersion": "apps/v1", "version": "v1"}}, "preferredVersion": map[string]any{"groupVersion": "apps/v1", "version": "v1"},
		}}},
		"/api/v1":       {"kind": "APIResourceList", "groupVersion": "v1", "resources": []any{resource("configmaps", "ConfigMap"), resource("pods", "Pod")}},
		"/apis/apps/v1": {"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": []any{resource("replicasets", "ReplicaSet"), resource("deployments", "Deployment")}},
	}}
}

// label is a policy with its binding that gives objects of a resource the label team.
func label(name, resource, value string) string {
	return fmt.Sprintf(`apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: ["v1"], operations: [CREATE, UPDATE], resources: [%[2]s]}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"%[1]s": %[3]s}}}'}
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}
`, name, resource, value)
}

// bench is a cluster with policies, and what replicas publish.
type bench struct {
	*fakeapi.Server
	t *testing.T

	mu       sync.Mutex
	policies map[string]string // texts by the binding's name
	bindings []Binding
	states   map[string]State
	sets     map[string]*audit.Set // by the texts of their policies

	cut atomic.Bool // no connection to the API server
}

// Config is that of the server, with connections that can be cut.
func (b *bench) Config() *rest.Config {
	config := b.Server.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if b.cut.Load() {
				return nil, errors.New("connection refused")
			}
			return next.RoundTrip(r)
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func newBench(t *testing.T, server *fakeapi.Server) *bench {
	return &bench{Server: server, t: t, policies: map[string]string{}, states: map[string]State{}, sets: map[string]*audit.Set{}}
}

// bind adds a policy, or replaces it.
func (b *bench) bind(name, text string, e api.Existing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.policies[name] = text
	for i := range b.bindings {
		if b.bindings[i].Name == name {
			b.bindings[i].Existing = e
			return
		}
	}
	b.bindings = append(b.bindings, Binding{Name: name, Policy: name, UID: types.UID("uid-" + name), Existing: e, Enforced: true})
}

func (b *bench) set(keep func(string) bool) *audit.Set {
	b.mu.Lock()
	var texts []string
	for _, of := range b.bindings {
		if keep(of.Name) {
			texts = append(texts, b.policies[of.Name])
		}
	}
	text := strings.Join(texts, "---\n")
	if set := b.sets[text]; set != nil {
		b.mu.Unlock()
		return set
	}
	b.mu.Unlock()
	docs, errs := manifest.ReadAll([]manifest.Input{{Name: "p.yaml", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}}, func(*manifest.Document) {})
	env, err := cel.NewEnv(cel.Options{})
	if err != nil || len(errs) > 0 {
		panic(fmt.Sprint(err, errs))
	}
	built, errs := policyset.Build(docs, policyset.Options{Env: env})
	if len(errs) > 0 {
		panic(fmt.Sprint(errs))
	}
	set := audit.Served(built.Engine(), built.Types)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sets[text] = set
	return set
}

func (b *bench) publish(all []State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if all == nil {
		// As a controller does, which leaves in the status what it says.
		return
	}
	for _, s := range all {
		b.states[s.Binding] = s
		for i := range b.bindings {
			if b.bindings[i].Name == s.Binding {
				b.bindings[i].Stopped = ""
				if s.Reason == Fight {
					b.bindings[i].Stopped = s.Message
				}
			}
		}
	}
}

func (b *bench) state(name string) State {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.states[name]
}

// lead has a replica hold the Lease until the function that it returns is called.
func (b *bench) lead(change func(*Options)) (stop func()) {
	asking := audit.Asking{Operation: admissionv1.Update, Timeout: time.Minute, Memory: memory.New(64 << 20)}
	kube, err := kubernetes.NewForConfig(b.Config())
	if err != nil {
		b.t.Fatal(err)
	}
	o := Options{
		Kubernetes: kube, Config: b.Config(), Namespace: "mapd-system", Asking: asking, Rate: 10, Patience: time.Minute,
		Bindings: func() []Binding {
			b.mu.Lock()
			defer b.mu.Unlock()
			return append([]Binding(nil), b.bindings...)
		},
		Set: b.set, Publish: b.publish,
	}
	if change != nil {
		change(&o)
	}
	r := &audit.Repeater{
		Every: time.Hour, Config: b.Config(), Set: func() *audit.Set { return b.set(func(string) bool { return true }) }, Asking: asking,
		Existing: New(o), Publish: func(*audit.Finished) {},
	}
	ctx, cancel := context.WithCancel(b.t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.Run(ctx, func(context.Context, map[string]string) error { return nil })
	}()
	return func() { cancel(); <-over }
}

func (b *bench) fill(n int) { b.fillAs("m", n) }

func (b *bench) fillAs(prefix string, n int) {
	for i := range n {
		b.Put(configMaps, "a", fmt.Sprintf("%s%04d", prefix, i), map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"n": "1"}})
	}
}

// writes returns how many writes the server has taken of a resource, without dry runs.
func (b *bench) writes(of schema.GroupVersionResource) (n int) {
	for _, w := range b.Writes() {
		if w.Resource == of && !w.DryRun {
			n++
		}
	}
	return n
}

func (b *bench) labelled(name, value string) (n int) {
	for _, u := range b.List(configMaps) {
		if u.GetLabels()[name] == value {
			n++
		}
	}
	return n
}

// started is when the first audit is over.
const started = 31 * time.Second

// report writes nothing; without the annotation, and while the policy is not enforced, nothing
// happens either.
func TestReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, server())
		b.fill(3)
		b.bind("team", label("team", "configmaps", `"x"`), api.Reported)
		b.bind("quiet", label("quiet", "configmaps", `"x"`), api.Fixed)
		b.bindings[1].Enforced = false
		stop := b.lead(nil)
		defer stop()
		time.Sleep(3 * time.Hour)
		if s := b.state("team"); s.Reason != Reported || s.Message != "3 objects would change; nothing is written" {
			t.Errorf("%+v", s)
		}
		if s := b.state("quiet"); s.Reason != Reported || !strings.Contains(s.Message, "not enforced") {
			t.Errorf("%+v", s)
		}
		for _, w := range b.Writes() {
			t.Errorf("written: %s", w)
		}
	})
}

// fix writes at the rate, only what its own policy makes, with a record of each write that puts
// it back; a binding without the annotation is as if it were not there.
func TestFix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, server())
		b.fill(30)
		b.bind("team", label("team", "configmaps", `"x"`), api.Fixed)
		b.bind("other", label("other", "configmaps", `"y"`), api.Ignored)
		b.bindings[1].Name = "other"
		stop := b.lead(func(o *Options) {
			all := o.Bindings
			o.Bindings = func() []Binding { return all()[:1] }
		})
		time.Sleep(started)
		before := b.labelled("team", "x")
		time.Sleep(time.Minute)
		if n := b.labelled("team", "x") - before; n < 9 || n > 10 {
			t.Errorf("%d objects were written in a minute at 10 a minute", n)
		}
		time.Sleep(10 * time.Minute)
		if s := b.state("team"); s.Reason != InLine || s.Written != 30 || b.labelled("team", "x") != 30 || b.labelled("other", "y") != 0 || b.writes(configMaps) != 30 {
			t.Errorf("%+v, %d writes", s, b.writes(configMaps))
		}
		stop()
		kube, err := kubernetes.NewForConfig(b.Config())
		if err != nil {
			t.Fatal(err)
		}
		all, err := ReadRecords(t.Context(), kube, "mapd-system")
		if err != nil || len(all) != 30 || !all[29].Stored {
			t.Fatalf("%d records, %v", len(all), err)
		}
		c, err := audit.Connect(t.Context(), b.Config())
		if err != nil {
			t.Fatal(err)
		}
		w := audit.Writer{Cluster: c}
		for _, u := range all {
			if outcome, why, err := w.Restore(t.Context(), u); outcome != audit.Restored || err != nil {
				t.Fatal(outcome, why, err)
			}
		}
		if b.labelled("team", "x") != 0 {
			t.Error("not put back")
		}
	})
}

// Outside of the windows nothing is written.
func TestWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it begins at midnight of 2000-01-01 in UTC, a Saturday
		b := newBench(t, server())
		b.fill(3)
		b.bind("team", label("team", "configmaps", `"x"`), api.Fixed)
		w, err := ParseWindow("Sat 02:30-02:45")
		if err != nil {
			t.Fatal(err)
		}
		stop := b.lead(func(o *Options) { o.Windows = []Window{w} })
		defer stop()
		time.Sleep(2*time.Hour + 29*time.Minute)
		if s := b.state("team"); s.Reason != Closed || b.writes(configMaps) != 0 {
			t.Errorf("%+v, %d writes", s, b.writes(configMaps))
		}
		time.Sleep(10 * time.Minute)
		if s := b.state("team"); s.Reason != InLine || b.writes(configMaps) != 3 {
			t.Errorf("%+v, %d writes", s, b.writes(configMaps))
		}
	})
}

func TestParseWindow(t *testing.T) {
	at := func(text string) time.Time {
		got, err := time.Parse("Mon 2006-01-02 15:04", text)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for text, want := range map[string]map[string]bool{
		"22:00-06:00":         {"Mon 2026-11-30 22:00": true, "Mon 2026-11-30 21:59": false, "Tue 2026-12-01 05:59": true, "Tue 2026-12-01 06:00": false},
		"Fri 22:00-06:00":     {"Fri 2026-11-27 23:00": true, "Sat 2026-11-28 05:00": true, "Fri 2026-11-27 05:00": false, "Sat 2026-11-28 22:00": false},
		"Sat,Sun 00:00-24:00": {"Sun 2026-11-29 23:59": true, "Mon 2026-11-30 00:00": false},
		"Fri-Mon 10:00-11:00": {"Sun 2026-11-29 10:30": true, "Tue 2026-12-01 10:30": false},
	} {
		w, err := ParseWindow(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for when, is := range want {
			if w.open(at(when)) != is {
				t.Errorf("%s at %s: %t", text, when, !is)
			}
		}
	}
	for _, text := range []string{"", "22:00", "22:00-22:00", "24:00-06:00", "25:00-26:00", "Mon", "Mo 10:00-11:00", "10:00-11:00 Mon", "Mon-Fri-Sat 10:00-11:00", "9:00-10:00"} {
		if _, err := ParseWindow(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// Somebody who changes a field back stops the binding, for every holder of the Lease, until its
// annotation has said report. A policy that wants another value is no fight, and waits an hour.
func TestFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, server())
		b.fill(2)
		b.bind("team", label("team", "configmaps", `"x"`), api.Fixed)
		stop := b.lead(nil)
		time.Sleep(started + time.Minute)
		if b.labelled("team", "x") != 2 {
			t.Fatal("not written")
		}
		b.bind("team", label("team", "configmaps", `"y"`), api.Fixed)
		time.Sleep(time.Hour)
		time.Sleep(5 * time.Minute)
		if n := b.labelled("team", "y"); n != 2 {
			t.Errorf("%d objects have what the policy wants now: %+v", n, b.state("team"))
		}
		// A controller takes the label away.
		back := func(name string) {
			u := b.Get(configMaps, "a", name)
			u.SetLabels(map[string]string{"mine": "z"})
			b.Put(configMaps, "a", name, u.Object)
		}
		back("m0000")
		stop()
		stop = b.lead(nil) // it only knows the records
		time.Sleep(started + time.Minute)
		s := b.state("team")
		if s.Reason != Fight || !strings.Contains(s.Message, "metadata.labels.team of an object of the kind ConfigMap was changed back") || strings.Contains(s.Message, "m0000") {
			t.Errorf("%+v", s)
		}
		b.fillAs("n", 3)
		before := b.writes(configMaps)
		time.Sleep(3 * time.Hour)
		stop()
		stop = b.lead(nil) // it only knows the status
		time.Sleep(3 * time.Hour)
		if now := b.writes(configMaps); now != before || b.state("team").Reason != Fight {
			t.Errorf("%d writes after the fight, %+v", now-before, b.state("team"))
		}
		stop()
	})
}

// A stop is lifted by the value report; then objects are written again.
func TestFightLifted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, server())
		b.fill(1)
		b.bind("team", label("team", "configmaps", `"x"`), api.Fixed)
		defer b.lead(nil)()
		time.Sleep(started + time.Minute)
		u := b.Get(configMaps, "a", "m0000")
		u.SetLabels(nil)
		b.Put(configMaps, "a", "m0000", u.Object)
		time.Sleep(time.Hour)
		if s := b.state("team"); s.Reason != Fight {
			t.Fatalf("%+v", s)
		}
		b.bind("team", label("team", "configmaps", `"x"`), api.Reported)
		time.Sleep(time.Minute)
		if s := b.state("team"); s.Reason != Reported {
			t.Fatalf("%+v", s)
		}
		b.bind("team", label("team", "configmaps", `"x"`), api.Fixed)
		time.Sleep(2 * time.Hour)
		if s := b.state("team"); s.Reason != InLine || b.labelled("team", "x") != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// Of the objects of one owner one is changed in an hour. What Git applies is left alone unless
// the flag says otherwise.
func TestOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, server())
		owned := func(name string, meta map[string]any) {
			b.Put(configMaps, "a", name, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta})
		}
		for i := range 3 {
			owned(fmt.Sprint("operated-", i), map[string]any{"ownerReferences": []any{map[string]any{"apiVersion": "x/v1", "kind": "X", "name": "x", "uid": "x", "controller": true}}})
			owned(fmt.Sprint("applied-", i), map[string]any{"labels": map[string]any{"argocd.argoproj.io/instance": "shop"}})
		}
		b.bind("team", label("team", "configmaps", `"x"`), api.Fixed)
		stop := b.lead(nil)
		time.Sleep(started + 10*time.Minute)
		s := b.state("team")
		if n := b.labelled("team", "x"); n != 1 || s.Message != "6 objects would change: 1 written, 5 left alone (3 applied from Git, 2 whose owner had a change within the hour)" {
			t.Errorf("%d, %+v", n, s)
		}
		time.Sleep(5 * time.Hour)
		if n := b.labelled("team", "x"); n != 3 {
			t.Errorf("%d of the operator's objects are written after hours", n)
		}
		stop()
		stop = b.lead(func(o *Options) { o.GitOps = true })
		time.Sleep(started + 10*time.Minute)
		if n := b.labelled("team", "x"); n != 4 {
			t.Errorf("%d are written with GitOps", n)
		}
		stop()
	})
}

// A policy that changes its own result again and again is not let loose on objects.
func TestUnstable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, server())
		b.fill(1)
		b.bind("again", label("again", "configmaps", `has(object.metadata.labels) && "again" in object.metadata.labels ? object.metadata.labels.again + "x" : "x"`), api.Fixed)
		defer b.lead(nil)()
		time.Sleep(3 * time.Hour)
		if s := b.state("again"); b.writes(configMaps) != 0 || s.Alone != 1 || !strings.Contains(s.Message, ofUnstable) {
			t.Errorf("%d writes, %+v", b.writes(configMaps), s)
		}
	})
}

// A replica that loses the Lease between the record and the write leaves a record that is no
// sign of a fight; what another client writes in between is not lost.
func TestEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, server())
		b.fill(3)
		b.bind("team", label("team", "configmaps", `"x"`), api.Fixed)
		stop := make(chan func(), 1)
		var once sync.Once
		var over sync.WaitGroup
		b.Intercept = func(r fakeapi.Request) (map[string]any, error) {
			if r.Verb != "patch" || r.DryRun || r.Resource != configMaps || r.Name != "m0001" {
				return nil, nil
			}
			var err error
			once.Do(func() {
				over.Go(<-stop)
				u := b.Get(configMaps, "a", "m0001")
				u.SetAnnotations(map[string]string{"mine": "z"})
				b.Put(configMaps, "a", "m0001", u.Object)
				err = errors.New("cut off")
			})
			return nil, err
		}
		stop <- b.lead(nil)
		time.Sleep(started + time.Minute)
		over.Wait()
		if n := b.labelled("team", "x"); n != 1 {
			t.Fatalf("%d objects are written before the end", n)
		}
		defer b.lead(nil)()
		time.Sleep(started + 2*time.Hour)
		if s := b.state("team"); s.Reason != InLine || b.labelled("team", "x") != 3 || b.Get(configMaps, "a", "m0001").GetAnnotations()["mine"] != "z" {
			t.Errorf("%+v, %d labelled", s, b.labelled("team", "x"))
		}
		if n := b.writes(configMaps); n != 4 { // one was refused
			t.Errorf("%d writes", n)
		}
	})
}

// While the API server is away the Keeper waits; without rights it says so and writes nothing.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, server())
		b.fill(20)
		b.bind("team", label("team", "configmaps", `"x"`), api.Fixed)
		var forbidden atomic.Bool
		b.Intercept = func(r fakeapi.Request) (map[string]any, error) {
			if forbidden.Load() && r.Resource == secrets && r.Verb != "list" {
				return nil, apierrors.NewForbidden(secrets.GroupResource(), r.Name, errors.New("no"))
			}
			return nil, nil
		}
		stop := b.lead(nil)
		time.Sleep(started + 30*time.Second)
		b.cut.Store(true)
		before := b.labelled("team", "x")
		time.Sleep(5 * time.Minute)
		b.cut.Store(false)
		time.Sleep(10 * time.Minute)
		if before == 0 || before == 20 || b.labelled("team", "x") != 20 {
			t.Errorf("%d before, %d at last", before, b.labelled("team", "x"))
		}
		stop()
		b.fillAs("n", 20)
		forbidden.Store(true)
		before = b.writes(configMaps)
		stop = b.lead(nil)
		time.Sleep(2 * time.Hour)
		if s := b.state("team"); s.Reason != NotAllowed || b.writes(configMaps) != before {
			t.Errorf("%+v, %d writes", s, b.writes(configMaps)-before)
		}
		stop()
	})
}

// Without the right to write an object the status says which one is missing.
func TestNoRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, server())
		b.fill(2)
		b.bind("team", label("team", "configmaps", `"x"`), api.Fixed)
		b.Intercept = func(r fakeapi.Request) (map[string]any, error) {
			switch {
			case r.Resource == configMaps && r.Verb == "patch":
				return nil, apierrors.NewForbidden(configMaps.GroupResource(), r.Name, errors.New("no"))
			case r.Resource.Resource == "selfsubjectaccessreviews":
				verb := r.Object["spec"].(map[string]any)["resourceAttributes"].(map[string]any)["verb"]
				return map[string]any{"apiVersion": authorizationv1.SchemeGroupVersion.String(), "kind": "SelfSubjectAccessReview", "spec": r.Object["spec"], "status": map[string]any{"allowed": verb == "get"}}, nil
			}
			return nil, nil
		}
		defer b.lead(nil)()
		time.Sleep(started + 10*time.Minute)
		if s := b.state("team"); s.Reason != NotAllowed || s.Message != "mapd may not patch configmaps: add a ClusterRole with the label "+AggregateLabel || s.Alone != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// Pods of a ReplicaSet are left alone; the template of its Deployment is written, once, if that
// may replace Pods.
func TestTemplate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, server())
		template := map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}}, "spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}}}
		b.Put(deployments, "a", "web", map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"paused": true, "replicas": int64(2), "template": template}})
		owner := func(kind, name string, uid types.UID) []any {
			return []any{map[string]any{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": string(uid), "controller": true}}
		}
		b.Put(replicaSets, "a", "web-1", map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": map[string]any{"ownerReferences": owner("Deployment", "web", b.Get(deployments, "a", "web").GetUID())}, "spec": map[string]any{"template": template}})
		for i := range 2 {
			b.Put(pods, "a", fmt.Sprint("web-1-", i), map[string]any{
				"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"ownerReferences": owner("ReplicaSet", "web-1", b.Get(replicaSets, "a", "web-1").GetUID())}, "spec": template["spec"],
			})
		}
		b.Put(pods, "a", "alone", map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]})
		b.bind("team", label("team", "pods", `"x"`), api.Fixed)
		stop := b.lead(nil)
		time.Sleep(started + 5*time.Minute)
		s := b.state("team")
		if b.writes(deployments) != 0 || b.writes(pods) != 1 || b.Get(pods, "a", "alone").GetLabels()["team"] != "x" || !strings.Contains(s.Message, "1 Pods of a template, 1 "+ofPods) {
			t.Errorf("%d, %d: %+v", b.writes(deployments), b.writes(pods), s)
		}
		stop()
		stop = b.lead(func(o *Options) { o.ReplacePods = true })
		time.Sleep(started + 5*time.Minute)
		got := b.Get(deployments, "a", "web")
		if want := "map[labels:map[app:web team:x]]"; b.writes(deployments) != 1 || b.writes(pods) != 1 || fmt.Sprint(got.Object["spec"].(map[string]any)["template"].(map[string]any)["metadata"]) != want {
			t.Errorf("%d, %d: %+v\n%v", b.writes(deployments), b.writes(pods), b.state("team"), got.Object["spec"])
		}
		stop()
	})
}

// What is remembered and noted is bounded.
func TestBounds(t *testing.T) {
	m := newPastWrites()
	now := time.Now()
	undo := func(i int) *audit.Undo {
		data := map[string]any{}
		for n := range 2 * maxFields {
			if i == 0 {
				part := fmt.Sprint("p", n/32)
				if data[part] == nil {
					data[part] = map[string]any{}
				}
				data[part].(map[string]any)[fmt.Sprint("k", n)] = "v"
			}
		}
		meta := map[string]any{"name": "m", "uid": fmt.Sprint("u", i)}
		return &audit.Undo{Before: map[string]any{"kind": "ConfigMap", "metadata": meta}, After: map[string]any{"kind": "ConfigMap", "metadata": meta, "data": data}, Stored: i == 0}
	}
	for i := range maxRemembered {
		m.add(undo(i), now)
	}
	if len(m.writes["u0"].fields) != maxFields || !m.full(now) || m.full(now.Add(between)) && len(m.writes) > maxRemembered {
		t.Errorf("%d fields, %d writes", len(m.writes["u0"].fields), len(m.writes))
	}
	for i := range maxRemembered {
		m.add(undo(maxRemembered+i), now.Add(2*between))
	}
	if len(m.writes) > maxRemembered || len(m.owners) > maxRemembered {
		t.Errorf("%d writes, %d owners", len(m.writes), len(m.owners))
	}
	if m.prune(now.Add(2 * recordsKept)); len(m.writes)+len(m.owners)+len(m.order) != 0 {
		t.Errorf("%d writes, %d owners, %d in order are left", len(m.writes), len(m.owners), len(m.order))
	}
	k := New(Options{Bindings: func() []Binding {
		return []Binding{{Name: "b", Policy: "p", UID: "b", Existing: api.Fixed, Enforced: true}}
	}})
	k.Begin()
	for i := range maxQueue + 5 {
		k.Add(&audit.Result{Kind: "ConfigMap", Name: fmt.Sprint(i), Changes: []audit.Change{{Path: "x"}}, By: []audit.Actor{{Policy: "p", Binding: "b", Fields: []string{"x"}}}})
	}
	if len(k.queue) != maxQueue || k.dropped != 5 {
		t.Errorf("%d in the queue, %d not", len(k.queue), k.dropped)
	}
	if s := k.state(k.bindings["b"]); s.Reason != Fixing || s.Waiting != maxQueue+5 {
		t.Errorf("%+v", s)
	}
}

// What the time until the next audit does not suffice for waits for that, and the status does not say
// that it is in line.
func TestTimeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, server())
		b.fill(650) // of which 600 are written in an hour
		b.bind("team", label("team", "configmaps", `"x"`), api.Fixed)
		defer b.lead(nil)()
		time.Sleep(started + 59*time.Minute + 30*time.Second)
		for range 60 {
			time.Sleep(time.Second)
			if s := b.state("team"); s.Written > 0 && s.Found == 650 && (s.Reason != Fixing || s.Waiting != 650-s.Written) {
				t.Fatalf("%+v", s)
			}
		}
		time.Sleep(30 * time.Minute)
		if s := b.state("team"); s.Reason != InLine || s.Written != s.Found || b.labelled("team", "x") != 650 || b.writes(configMaps) != 650 {
			t.Errorf("%+v, %d writes", s, b.writes(configMaps))
		}
	})
}

// A container that somebody puts before another takes its index, and is none that was changed back.
func TestChangedBack(t *testing.T) {
	pod := func(containers ...any) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web", "uid": "u"}, "spec": map[string]any{"containers": containers}}
	}
	container := func(name, policy string) any {
		return map[string]any{"name": name, "image": name, "imagePullPolicy": policy}
	}
	m := newPastWrites()
	m.add(&audit.Undo{Stored: true, Before: pod(container("app", "IfNotPresent")), After: pod(container("app", "Always"))}, time.Now())
	for name, tt := range map[string]struct {
		was, want map[string]any
		pointers  string
	}{
		"another in front": {pod(container("new", "Never"), container("app", "Always")), pod(container("new", "Always"), container("app", "Always")), "[]"},
		"changed back":     {pod(container("app", "IfNotPresent")), pod(container("app", "Always")), "[/spec/containers/0/imagePullPolicy]"},
		"both": {pod(container("new", "Never"), container("app", "Never")), pod(container("new", "Always"), container("app", "Always")),
			"[/spec/containers/1/imagePullPolicy]"},
	} {
		got := m.changedBack(&unstructured.Unstructured{Object: tt.was}, &unstructured.Unstructured{Object: tt.want})
		if fmt.Sprint(got) != tt.pointers {
			t.Errorf("%s: %v, want %s", name, got, tt.pointers)
		}
	}
}
