package store

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/cluster/feature/featuretest"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// world is one policy in each group and what else there may be.
func world(t *testing.T) *compiler {
	t.Helper()
	c := &compiler{deps: featuretest.Deps(t).Policy}
	c.update(byName(
		testPolicy(t, "fail", "1"),
		testPolicy(t, "fail-again", "1", "reinvocationPolicy: Never", "reinvocationPolicy: IfNeeded"),
		testPolicy(t, "ignore", "1", "failurePolicy: Fail", "failurePolicy: Ignore"),
		testPolicy(t, "ignore-again", "1", "failurePolicy: Fail", "failurePolicy: Ignore", "reinvocationPolicy: Never", "reinvocationPolicy: IfNeeded"),
		testPolicy(t, "broken", "1", `"VALUE"`, "nothing"),
		testPolicy(t, "nowhere", "1", "resourceRules:", "resourceRules: []\n    excludeResourceRules:"),
		testPolicy(t, "unbound", "1"),
		testPolicy(t, "params", "1", "failurePolicy: Fail", "failurePolicy: Fail\n  paramKind: {apiVersion: v1, kind: ConfigMap}"),
	), byName(
		testBinding(t, "b-broken", "broken"),
		testBinding(t, "b-dangling", "missing"),
		testBinding(t, "b-fail", "fail"),
		testBinding(t, "b-fail-again", "fail-again"),
		testBinding(t, "b-fail-too", "fail"),
		testBinding(t, "b-ignore", "ignore"),
		testBinding(t, "b-ignore-again", "ignore-again"),
		testBinding(t, "b-nowhere", "nowhere"),
		testBinding(t, "b-params", "params"),
		unreadable(t, "b-unreadable", "unbound"),
	))
	return c
}

func unreadable(t *testing.T, name, policyName string) *unstructured.Unstructured {
	u := testBinding(t, name, policyName)
	u.Object["spec"].(map[string]any)["sinceVersionTwo"] = true
	return u
}

// contents are the policies and bindings of each group that has any.
func contents(groups map[webhook.ID]*joined) map[string]string {
	out := map[string]string{}
	for g, j := range groups {
		if len(j.policies) > 0 || len(j.bindings) > 0 {
			out[g.Path()] = fmt.Sprint(namesOf(j.index.Policies()), namesOf(j.index.Bindings()))
		}
	}
	return out
}

func namesOf[T interface{ Name() string }](list []T) []string {
	var out []string
	for _, t := range list {
		out = append(out, t.Name())
	}
	return out
}

func TestJoin(t *testing.T) {
	c := world(t)
	groups, err := join(c.catalogue, binding.Sources{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"/mutate/fail/never":      "[broken fail params] [b-broken b-fail b-fail-too b-params]",
		"/mutate/fail/ifneeded":   "[fail-again] [b-fail-again]",
		"/mutate/ignore/never":    "[ignore] [b-ignore]",
		"/mutate/ignore/ifneeded": "[ignore-again] [b-ignore-again]",
	}
	if diff := cmp.Diff(want, contents(groups)); diff != "" {
		t.Errorf("groups (-want +got):\n%s", diff)
	}
}

// A group in which nothing changed keeps its Index, and all that it has learned.
func TestJoinKeeps(t *testing.T) {
	c := world(t)
	policy := func(name string, change ...string) func() {
		return func() { c.update(byName(testPolicy(t, name, "1", change...)), nil) }
	}
	tests := []struct {
		name string
		do   func()
		want []string // the groups with a new Index
	}{
		{"nothing", func() {}, nil},
		{"a label", policy("fail", "labels: {}", "labels: {team: x}"), nil},
		{"a policy without a binding", policy("unbound", "VALUE", "2"), nil},
		{"a binding without its policy", func() { c.update(nil, gone("b-dangling")) }, nil},
		{"a spec", policy("ignore", "VALUE", "2", "failurePolicy: Fail", "failurePolicy: Ignore"), []string{"/mutate/ignore/never"}},
		{"another group", policy("ignore"), []string{"/mutate/fail/never", "no /mutate/ignore/never"}},
		{"a binding less", func() { c.update(nil, gone("b-fail-again")) }, []string{"no /mutate/fail/ifneeded"}},
	}
	groups, err := join(c.catalogue, binding.Sources{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range tests {
		tt.do()
		next, err := join(c.catalogue, binding.Sources{}, groups, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for g := range next {
			if next[g].index != groups[g].index {
				got = append(got, g.Path())
			}
		}
		for g := range groups {
			if next[g] == nil {
				got = append(got, "no "+g.Path())
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: groups with a new Index (-want +got):\n%s", tt.name, diff)
		}
		groups = next
	}
}

func TestParamKinds(t *testing.T) {
	c := world(t)
	groups, err := join(c.catalogue, binding.Sources{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := paramKinds(groups); got != nil {
		t.Errorf("no binding names parameters, and yet there are %v", got)
	}
	b := testBinding(t, "b-params", "params")
	b.Object["spec"].(map[string]any)["paramRef"] = map[string]any{"name": "c", "parameterNotFoundAction": "Deny"}
	c.update(nil, byName(b))
	if groups, err = join(c.catalogue, binding.Sources{}, groups, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}}, paramKinds(groups)); diff != "" {
		t.Errorf("kinds of parameters (-want +got):\n%s", diff)
	}
}

func TestSnapshot(t *testing.T) {
	c := world(t)
	asked := 0
	p := newPublication(publication{
		catalogue: c.catalogue, types: c.deps.Types,
		params: func(gvk schema.GroupVersionKind) ParamState {
			asked++
			return ParamState{GVK: gvk, Found: true, Err: errors.New("forbidden")}
		},
	})
	s := p.snapshot()
	if p.snapshot() != s || asked != 1 {
		t.Errorf("made anew for each who asks, parameters looked up %d times", asked)
	}
	got := map[string]string{}
	for _, p := range s.Policies {
		kind := "none"
		if p.ParamKind != nil {
			kind = fmt.Sprint(p.ParamKind.GVK.Kind, " ", p.ParamKind.Found, " ", p.ParamKind.Synced, " ", p.ParamKind.Err)
		}
		got[p.Object.GetName()] = fmt.Sprintf("%s, errors %d, bound %v, params %s", p.Policy.Name(), len(p.Errs), p.Bound, kind)
	}
	for _, b := range s.Bindings {
		got[b.Object.GetName()] = fmt.Sprintf("%s found %v, error %q", b.PolicyName, b.PolicyFound, errString(b.Err))
	}
	want := map[string]string{
		"broken":         "broken, errors 1, bound true, params none",
		"fail":           "fail, errors 0, bound true, params none",
		"fail-again":     "fail-again, errors 0, bound true, params none",
		"ignore":         "ignore, errors 0, bound true, params none",
		"ignore-again":   "ignore-again, errors 0, bound true, params none",
		"nowhere":        "nowhere, errors 1, bound true, params none",
		"params":         "params, errors 0, bound true, params ConfigMap true false forbidden",
		"unbound":        "unbound, errors 0, bound false, params none",
		"b-broken":       `broken found true, error ""`,
		"b-dangling":     `missing found false, error ""`,
		"b-fail":         `fail found true, error ""`,
		"b-fail-again":   `fail-again found true, error ""`,
		"b-fail-too":     `fail found true, error ""`,
		"b-ignore":       `ignore found true, error ""`,
		"b-ignore-again": `ignore-again found true, error ""`,
		"b-nowhere":      `nowhere found true, error ""`,
		"b-params":       `params found true, error ""`,
		"b-unreadable":   `unbound found true, error "strict decoding error: unknown field \"spec.sinceVersionTwo\""`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("snapshot (-want +got):\n%s", diff)
	}
}

// Kinds may change all the time; warnings are not found anew each time.
func TestWarningsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v warningsVersion
		again := 0
		check := func(want uint64, when string) {
			t.Helper()
			if got := v.current(); got != want {
				t.Errorf("%s: version %d, want %d", when, got, want)
			}
		}
		check(0, "at first")
		v.expire(func() { again++ })
		check(1, "a change")
		v.expire(func() { again++ })
		check(1, "another one soon after")
		time.Sleep(warnInterval)
		if synctest.Wait(); again != 1 {
			t.Errorf("called %d times, want once", again)
		}
		check(2, "in time")
		time.Sleep(warnInterval)
		check(2, "nothing")
		v.expire(nil)
		check(3, "a change after a pause")
	})
}
