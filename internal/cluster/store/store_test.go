package store

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/feature/featuretest"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// counted keeps what metrics count.
type counted struct {
	last    []int
	changed bool        // of the last
	names   [][2]string // of what was counted
}

func (c *counted) Prune(keep func(policy, binding string) bool) {
	c.names = slices.DeleteFunc(c.names, func(n [2]string) bool { return !keep(n[0], n[1]) })
}

func (c *counted) BreakersPublished(map[string]bool) {}

func (c *counted) SnapshotPublished(policies, bindings, compileErrors int, changed bool) {
	c.last, c.changed = []int{policies, bindings, compileErrors}, changed
}

// newTestStore is a Store that nobody runs; its clients lead nowhere.
func newTestStore(t testing.TB, metrics Metrics, features ...feature.Feature) *Store {
	t.Helper()
	config := &rest.Config{Host: "http://127.0.0.1:1"}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{Dynamic: dyn, Kubernetes: kube, Env: featuretest.Deps(t).Policy.Env, Metrics: metrics, Features: features})
	s.compiler.deps = featuretest.Deps(t).Policy
	return s
}

// change is what the loop does once everything has been read.
func (s *Store) change(t testing.TB, policies, bindings map[string]*stored) {
	t.Helper()
	s.compiler.update(policies, bindings)
	if err := s.rebuild(t.Context(), false); err != nil {
		t.Fatal(err)
	}
}

func configMap() *policy.Request {
	return &policy.Request{
		Operation: admissionv1.Create, Name: "c",
		Kind:     schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Object: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"},
		}},
	}
}

func has(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestStorePublishes(t *testing.T) {
	var metrics counted
	s := newTestStore(t, &metrics)
	early := s.Changed()
	if s.Snapshot() != nil || has(early) || s.Ready() == nil {
		t.Error("something is there before the first snapshot")
	}
	for _, g := range webhook.Groups() {
		d := s.Entry(webhook.ID{Group: g}).Admit(t.Context(), configMap())
		if denied := d.Status != nil; denied != (g.FailurePolicy == "Fail") {
			t.Errorf("%s before the first snapshot: denied %v", g.Path(), denied)
		}
	}

	s.change(t, byName(testPolicy(t, "one", "1"), testPolicy(t, "broken", "1", `"VALUE"`, "nothing")), byName(testBinding(t, "one", "one")))
	if err := s.Ready(); err != nil {
		t.Error(err)
	}
	late := s.Changed()
	if !has(early) || has(early) || !has(late) || has(late) {
		t.Error("everyone should have heard of the snapshot once")
	}
	if diff := cmp.Diff([]int{2, 1, 1}, metrics.last); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
	first := s.Snapshot()
	if len(first.Policies) != 2 || len(first.Bindings) != 1 {
		t.Errorf("snapshot of %d policies and %d bindings", len(first.Policies), len(first.Bindings))
	}
	d := s.Entry(webhook.ID{Group: webhook.Groups()[0]}).Admit(t.Context(), configMap())
	if diff := cmp.Diff(map[string]string{"one": "1"}, d.Object.GetLabels()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}

	// A status changes no decision, but those who write it see it.
	status := testPolicy(t, "one", "1")
	status.Object["status"] = map[string]any{"observedGeneration": int64(1)}
	s.change(t, byName(status), nil)
	if metrics.changed {
		t.Error("a status counts as a snapshot")
	}
	delete(status.Object, "spec")
	if diff := cmp.Diff(status.Object, s.Snapshot().Policies[1].Object.Object); !has(early) || diff != "" {
		t.Errorf("the new status is not in the snapshot (-want +got):\n%s", diff)
	}
	if first.Policies[1].Object.Object["status"] != nil {
		t.Error("an old snapshot has changed")
	}

	// So does a policy without a binding, which counts nevertheless.
	s.change(t, gone("broken"), nil)
	if diff := cmp.Diff([]int{1, 1, 0}, metrics.last); metrics.changed || diff != "" {
		t.Errorf("counts as a snapshot: %v; metrics (-want +got):\n%s", metrics.changed, diff)
	}
}

// An engine of all entries runs each policy in its mode, and is no matter for breakers.
func TestWhole(t *testing.T) {
	s := newTestStore(t, nil)
	if s.Whole(nil) != nil {
		t.Error("policies before they were read")
	}
	quiet := testPolicy(t, "quiet", "1")
	quiet.SetAnnotations(map[string]string{"mapd.dev/mode": "shadow"})
	failing := testPolicy(t, "failing", "1", `"VALUE"`, `string(1/object.metadata.?generation.orValue(0))`)
	failing.SetAnnotations(map[string]string{"mapd.dev/breaker": "errors=5%"})
	failing.Object["spec"].(map[string]any)["failurePolicy"] = "Ignore"
	s.change(t, byName(testPolicy(t, "one", "1"), quiet, failing), byName(testBinding(t, "one", "one"), testBinding(t, "quiet", "quiet"), testBinding(t, "failing", "failing")))
	e := s.Whole(nil)
	tripped := func() bool { return s.compiler.switchBreakers() }
	for range 100 {
		d := e.Admit(t.Context(), configMap())
		shadows := d.Stages[0].Shadows
		if diff := cmp.Diff(map[string]string{"one": "1"}, d.Object.GetLabels()); diff != "" || len(shadows) != 1 || shadows[0].Policy != "quiet" {
			t.Fatalf("labels (-want +got):\n%s, shadows %+v", diff, shadows)
		}
	}
	if tripped() {
		t.Error("what was only looked at has tripped a breaker")
	}
	req := configMap()
	if !e.MayMeet(req) {
		t.Error("no policy is about ConfigMaps")
	}
	req.Kind.Kind, req.Resource.Resource = "Pod", "pods"
	if e.MayMeet(req) {
		t.Error("a policy is about Pods")
	}
	for _, g := range webhook.Groups() {
		for range 100 {
			s.Entry(webhook.ID{Group: g}).Admit(t.Context(), configMap())
		}
	}
	if !tripped() {
		t.Error("requests have not tripped the breaker")
	}
}

// What is counted of a policy and a binding goes with them.
func TestStorePrunes(t *testing.T) {
	all := [][2]string{{"one", ""}, {"one", "a"}, {"two", "b"}, {"two", ""}, {"one", "b"}, {"gone", ""}, {"gone", "c"}}
	metrics := counted{names: slices.Clone(all)}
	s := newTestStore(t, &metrics)
	s.change(t, byName(testPolicy(t, "one", "1"), testPolicy(t, "two", "2")),
		byName(testBinding(t, "a", "one"), testBinding(t, "b", "two"), testBinding(t, "c", "gone")))
	if diff := cmp.Diff(all[:4], metrics.names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	s.change(t, gone("two"), gone("a"))
	if diff := cmp.Diff(all[:1], metrics.names); diff != "" {
		t.Errorf("names after deletions (-want +got):\n%s", diff)
	}
}

// What a request that was under way counts of a policy that is gone goes, too, although
// nothing changes any more.
func TestStorePrunesLate(t *testing.T) {
	late := [2]string{"one", "a"}
	metrics := counted{}
	kept := [][2]string{late}
	s := newTestStore(t, &metrics)
	s.prune = func(keep func(policy, binding string) bool) {
		kept = slices.DeleteFunc(kept, func(n [2]string) bool { return !keep(n[0], n[1]) })
	}
	synctest.Test(t, func(t *testing.T) {
		s.changes = watch.NewSignal()
		s.change(t, byName(testPolicy(t, "one", "1")), byName(testBinding(t, "a", "one")))
		s.change(t, gone("one"), gone("a"))
		metrics.names, kept = [][2]string{late}, [][2]string{late}
		time.Sleep(longestRequest - time.Second)
		select {
		case <-s.changes:
			t.Error("too early: a request may still be under way")
		default:
		}
		<-s.changes // or the test is deadlocked
		s.forgetLate()
		if len(metrics.names) > 0 || len(kept) > 0 {
			t.Errorf("metrics of %v and records of %v are left", metrics.names, kept)
		}
		if s.forgetLate(); !s.forgetAt.IsZero() {
			t.Error("it is done again and again")
		}
	})
}

// Each request sees all of one snapshot. Every policy has two halves that must
// agree, and the policies of a group must agree with one another.
func TestHammerPublish(t *testing.T) {
	s := newTestStore(t, nil)
	versions := 50
	if testing.Short() {
		versions = 10
	}
	publish := func(version int) {
		var policies, bindings []*unstructured.Unstructured
		for _, g := range webhook.Groups() {
			for _, name := range []string{"a", "b"} {
				u := testPolicy(t, g.Name()+"."+name, strconv.Itoa(version),
					"failurePolicy: Fail", "failurePolicy: "+string(g.FailurePolicy),
					"reinvocationPolicy: Never", "reinvocationPolicy: "+string(g.ReinvocationPolicy))
				policies = append(policies, u)
				bindings = append(bindings, testBinding(t, u.GetName(), u.GetName()))
			}
		}
		s.change(t, byName(policies...), byName(bindings...))
	}
	publish(0)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var admitted atomic.Int64
	for _, g := range webhook.Groups() {
		a := s.Entry(webhook.ID{Group: g})
		running.Go(func() {
			for last := 0; ctx.Err() == nil; admitted.Add(1) {
				labels := a.Admit(t.Context(), configMap()).Object.GetLabels()
				va, vb := labels[g.Name()+".a"], labels[g.Name()+".b"]
				version, err := strconv.Atoi(va)
				if err != nil || va != vb || version < last {
					t.Errorf("%s: versions %q and %q after %d", g.Path(), va, vb, last)
					return
				}
				last = version
			}
		})
	}
	running.Go(func() {
		for changed := s.Changed(); ; {
			select {
			case <-ctx.Done():
				return
			case <-changed:
				if n := len(s.Snapshot().Policies); n != 8 {
					t.Errorf("snapshot of %d policies", n)
				}
			}
		}
	})
	for version := range versions {
		publish(version + 1)
	}
	stop()
	running.Wait()
	if admitted.Load() == 0 {
		t.Error("no request was admitted")
	}
}

// many is n policies with a binding each: every one limited to a namespace of
// its own, with a condition, a variable and a patch that uses it.
func many(t testing.TB, n int) (policies, bindings []*unstructured.Unstructured) {
	for i := range n {
		name := fmt.Sprintf("policy-%05d", i)
		p := testPolicy(t, name, strconv.Itoa(i), "  mutations:", `  matchConditions:
  - {name: not-kube, expression: '!request.userInfo.username.startsWith("system:kube-")'}
  variables:
  - {name: team, expression: 'has(object.metadata.labels) && "team" in object.metadata.labels ? object.metadata.labels["team"] : "none"'}
  mutations:`, `"VALUE"`, `"VALUE-" + variables.team`)
		policies = append(policies, p)
		b := testBinding(t, name, name)
		b.Object["spec"].(map[string]any)["matchResources"] = map[string]any{
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": name}},
		}
		bindings = append(bindings, b)
	}
	return policies, bindings
}

const much = 10_000

// BenchmarkLoad is a start with 10,000 policies and bindings: decode, validate,
// compile, join, publish.
func BenchmarkLoad(b *testing.B) {
	policies, bindings := many(b, much)
	b.ReportAllocs()
	for b.Loop() {
		s := newTestStore(b, nil)
		s.change(b, byName(policies...), byName(bindings...))
		if n := len(s.entries[webhook.ID{Group: webhook.Groups()[0]}].policies); n != much || s.compiler.broken() != 0 {
			b.Fatalf("%d policies, %d broken", n, s.compiler.broken())
		}
	}
}

// BenchmarkChange is one change among 10,000 policies, the debounce left out.
// With "first" the first request after it is in the time, too.
func BenchmarkChange(b *testing.B) {
	policies, bindings := many(b, much)
	s := newTestStore(b, nil)
	s.change(b, byName(policies...), byName(bindings...))
	name := fmt.Sprintf("policy-%05d", much/2)
	shop := featuretest.Parse(b, "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {kubernetes.io/metadata.name: shop}}}")
	if err := s.namespaces.Replace([]any{shop}, ""); err != nil {
		b.Fatal(err)
	}
	admit := s.Entry(webhook.ID{Group: webhook.Groups()[0]})
	run := func(b *testing.B, change func(i int) *unstructured.Unstructured, request bool) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			changed := byName(change(i))
			b.StartTimer()
			s.change(b, changed, nil)
			if request {
				req := configMap()
				req.Namespace = "shop"
				if d := admit.Admit(b.Context(), req); d.Status != nil || d.Changed {
					b.Fatal("a policy for another namespace had a say")
				}
			}
		}
	}
	spec := func(i int) *unstructured.Unstructured { return testPolicy(b, name, strconv.Itoa(i)) }
	b.Run("spec", func(b *testing.B) { run(b, spec, false) })
	b.Run("first", func(b *testing.B) { run(b, spec, true) })
	b.Run("status", func(b *testing.B) {
		run(b, func(i int) *unstructured.Unstructured {
			u := testPolicy(b, name, "1")
			u.Object["status"] = map[string]any{"i": int64(i)}
			return u
		}, false)
	})
	b.Run("snapshot", func(b *testing.B) {
		s.Snapshot()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			b.StopTimer()
			s.change(b, byName(spec(i)), nil)
			b.StartTimer()
			s.Snapshot()
		}
	})
}
