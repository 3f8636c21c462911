package mutators

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/test/hammer"
)

// FuzzQuick runs the programs of random mutators on random objects the quick way, with
// costs and without, and in a form that only cel-go knows.
func FuzzQuick(f *testing.F) {
	hammer.Alone(f)
	for seed := range uint64(hammer.Count(100)) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		m := random(t, rnd, 0)
		if rnd.IntN(3) == 0 {
			m = randomSet(t, rnd)
		}
		p := translate.Runtime(m, translate.ShapeOf(m))
		inputs := make([]*cel.Input, 40)
		for i := range inputs {
			namespace := []string{"shop", "other-a", ""}[rnd.IntN(3)]
			inputs[i] = &cel.Input{Object: randomPod(rnd), Params: m.Object,
				Request: func() map[string]any { return map[string]any{"namespace": namespace} }}
			if rnd.IntN(3) == 0 {
				inputs[i].Namespace = map[string]any{"metadata": map[string]any{"name": namespace, "labels": map[string]any{"x": "v"}}}
			}
		}
		compareAll(t, p, inputs, cel.TypedPatch)
		for _, o := range []translate.Options{{}, {Patch: "json", Params: true}, {Patch: "apply"}} {
			for _, unit := range translate.Native([]*legacy.Mutator{m}, o) {
				if unit.Policy != nil {
					compareAll(t, unit.Policy, inputs, cel.JSONPatch)
				}
			}
		}
	})
}

// compareAll compares all expressions of a policy; patch is what JSON Patches are.
func compareAll(t *testing.T, p *admissionregistrationv1.MutatingAdmissionPolicy, inputs []*cel.Input, patch cel.Want) {
	t.Helper()
	for _, c := range p.Spec.MatchConditions {
		compare(t, nil, c.Expression, cel.Bool, inputs, (*cel.Program).Bool)
	}
	for _, m := range p.Spec.Mutations {
		if m.JSONPatch != nil {
			compare(t, p.Spec.Variables, m.JSONPatch.Expression, patch, inputs, (*cel.Program).JSONPatch)
		}
		if m.ApplyConfiguration != nil {
			compare(t, p.Spec.Variables, m.ApplyConfiguration.Expression, cel.Object, inputs, (*cel.Program).Object)
		}
	}
}

// slow is an expression that means the same and has no quick way, since it has a sum
// in it.
func slow(expr string) string { return "([1].sum() == 1 ? (" + expr + ") : (" + expr + "))" }

// compare evaluates an expression in three ways, of which the first is cel-go's.
func compare[T any](t *testing.T, variables []admissionregistrationv1.Variable, expr string, want cel.Want, inputs []*cel.Input,
	run func(*cel.Program, context.Context, *cel.Activation) (T, error)) {
	t.Helper()
	same := func(expr string) string { return expr }
	ways := []struct {
		expr      func(string) string
		unmetered bool
	}{{slow, true}, {same, true}, {same, false}}
	var programs []*cel.Program
	var scopes []*cel.Scope
	for _, way := range ways {
		s := deps().Env.Scope(cel.Vars{Params: true, Variables: want != cel.Bool, Unmetered: way.unmetered})
		for _, v := range variables {
			if err := s.Define(v.Name, way.expr(v.Expression)); err != nil {
				t.Fatal(err)
			}
		}
		p, err := s.Compile(way.expr(expr), want)
		if err != nil {
			t.Fatal(err)
		}
		programs, scopes = append(programs, p), append(scopes, s)
	}
	for _, in := range inputs {
		var first T
		var firstErr string
		for i, p := range programs {
			out, err := run(p, t.Context(), scopes[i].Bind(in, nil))
			text := ""
			if err != nil {
				// The text has the expression in it.
				_, text, _ = strings.Cut(err.Error(), "resulted in error: ")
				text = "error: " + text
			}
			if i == 0 {
				first, firstErr = out, text
				continue
			}
			if diff := cmp.Diff(first, out, cmpopts.EquateEmpty()); diff != "" || text != firstErr {
				t.Errorf("%s\nway %d on %v gives the error %q, want %q (-want +got):\n%s", expr, i, in.Object, text, firstErr, diff)
			}
		}
	}
}

// randomSet makes mutators of which random makes none.
func randomSet(t testing.TB, rnd *rand.Rand) *legacy.Mutator {
	pick := func(list ...string) string { return list[rnd.IntN(len(list))] }
	where := pick("spec.a", "spec.a[k: *].b", "spec.a[k: v].b", "spec.a.k", "spec.b[k: *].a[k: w].end")
	match := pick("namespaces: [shop, other-*]", "excludedNamespaces: [shop, other]", "name: p", "labelSelector: {matchExpressions: [{key: x, operator: In, values: [v, w]}]}", "scope: Namespaced")
	switch rnd.IntN(3) {
	case 0:
		return decode(t, "ModifySet", "s", fmt.Sprintf(`{%s, match: {%s}, location: %q, parameters: {operation: %s, values: {fromList: [v, 1, {k: v}]}}}`, pods, match, where, pick("merge", "prune")))
	case 1:
		return decode(t, "AssignImage", "i", fmt.Sprintf(`{%s, match: {%s}, location: %q, parameters: {assignDomain: "r.example", assignTag: ":v1"}}`, pods, match, where))
	}
	return decode(t, "Assign", "l", fmt.Sprintf(`{%s, match: {%s}, location: %q, parameters: {assign: {value: {k: v, n: 1.5}}}}`, pods, match, pick("spec.a[k: v]", "spec.b[k: *].a[k: v]")))
}

// randomPod is an object whose fields are those of random locations, not always
// with the values that mutators expect.
func randomPod(rnd *rand.Rand) map[string]any {
	pod := map[string]any{"apiVersion": "v1", "kind": "Pod"}
	for _, name := range []string{"metadata", "spec", "status"} {
		if rnd.IntN(8) > 0 {
			pod[name] = randomValue(rnd, 4)
		}
	}
	return pod
}

func randomValue(rnd *rand.Rand, depth int) any {
	names := []string{"a", "b", "k", "k2", "end", "labels", "annotations", "x", "y", "name"}
	switch n := rnd.IntN(12); {
	case depth > 0 && n < 7:
		m := map[string]any{}
		for range rnd.IntN(6) {
			m[names[rnd.IntN(len(names))]] = randomValue(rnd, depth-1)
		}
		return m
	case depth > 0 && n < 10:
		l := []any{}
		for range rnd.IntN(4) {
			l = append(l, randomValue(rnd, depth-1))
		}
		return l
	}
	return []any{"v", "w", "r/v:1", "p", "", "å~/v", "x@sha256:0", int64(1), int64(-1 << 63), 1.0, true, nil}[rnd.IntN(12)]
}
