package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
)

// The steps of Kyverno's rules, what refuses a request, and what is missed have the names of
// rules, whatever the policies that stand for them are called; and nobody orders them anew.
func TestRules(t *testing.T) {
	called := map[string][]string{
		"one#0": {"ClusterPolicy/one", "ClusterPolicy/one/first", "ClusterPolicy/one/second"},
		"two#0": {"ClusterPolicy/two/only", "ClusterPolicy/two/only"},
		"two#1": {"ClusterPolicy/two/only"},
	}
	name := func(policy string, mutation int) string { return called[policy][mutation+1] }
	admit := func(second mutator) (*Engine, *policy.Request, *Decision) {
		e := New(Options{Order: func(all []binding.Invocation) []binding.Invocation {
			out := slices.Clone(all)
			slices.Reverse(out)
			return out
		}})
		e.Publish(Rules(index(t, binding.Sources{Namespaces: namespaces{"shop"}},
			newPolicy(t, "one#0", run1(write("1"), second)), newPolicy(t, "two#0", run1(write("3"))), newPolicy(t, "two#1", nil, selecting("of", "nobody"))), api.Enforce, name))
		req := creates(widgetWith(map[string]any{}))
		return e, req, e.Admit(t.Context(), req)
	}
	e, req, d := admit(write("2"))
	var got []string
	for _, s := range d.Steps {
		got = append(got, fmt.Sprintf("%s %s %q %d %s", s.Stage, s.Policy, s.Binding, s.Mutation, s.Outcome))
	}
	want := []string{
		`rules ClusterPolicy/one/first "" 0 changed`, `rules ClusterPolicy/one/second "" 1 changed`, `rules ClusterPolicy/two/only "" 0 changed`,
	}
	if !slices.Equal(got, want) || data(d.Object, "log") != "123" {
		t.Errorf("steps %q, log %s", got, data(d.Object, "log"))
	}
	for m := range e.Misses(t.Context(), req, d) {
		t.Errorf("missed %s, which has a step by another policy", m.Member)
	}

	e = New(Options{})
	e.Publish(Rules(index(t, binding.Sources{Namespaces: namespaces{"shop"}}, newPolicy(t, "two#1", nil, selecting("of", "nobody"))), api.Enforce, name))
	var missed []string
	for m := range e.Misses(t.Context(), req, e.Admit(t.Context(), req)) {
		missed = append(missed, m.Member)
	}
	if !slices.Equal(missed, []string{"ClusterPolicy/two/only"}) {
		t.Errorf("missed %q", missed)
	}

	if _, _, d = admit(fails(errors.New("no"))); d.Status == nil || !strings.HasPrefix(d.Status.Message, `policy "ClusterPolicy/one/second" denied request: `) {
		t.Errorf("status %+v", d.Status)
	}
}
