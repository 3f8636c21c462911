package mutators

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/translate"
)

// FuzzQuick runs the programs of random mutators on random objects the quick way
// and the long one, which counts costs and so is cel-go's alone.
func FuzzQuick(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		rnd := rand.New(rand.NewPCG(seed, 11))
		m := random(t, rnd, 0)
		if rnd.IntN(3) == 0 {
			m = randomSet(t, rnd)
		}
		p := translate.Runtime(m, deps().Types).Policy
		conditions, patches := both(cel.Vars{Params: true}), both(cel.Vars{Params: true, Variables: true})
		inputs := make([]*cel.Input, 8)
		for i := range inputs {
			inputs[i] = &cel.Input{Object: randomPod(rnd), Params: m.Object,
				Request: func() map[string]any { return map[string]any{"namespace": "shop"} }}
		}
		for _, c := range p.Spec.MatchConditions {
			compare(t, conditions, c.Expression, cel.Bool, inputs, (*cel.Program).Bool)
		}
		compare(t, patches, p.Spec.Mutations[0].JSONPatch.Expression, cel.TypedPatch, inputs, (*cel.Program).JSONPatch)
	})
}

// both are a scope that knows the quick way and one that does not.
func both(vars cel.Vars) [2]*cel.Scope {
	slow := deps().Env.Scope(vars)
	vars.Unmetered = true
	return [2]*cel.Scope{deps().Env.Scope(vars), slow}
}

func compare[T any](t *testing.T, scopes [2]*cel.Scope, expr string, want cel.Want, inputs []*cel.Input,
	run func(*cel.Program, context.Context, *cel.Activation) (T, error)) {
	t.Helper()
	var programs [2]*cel.Program
	for i, s := range scopes {
		var err error
		if programs[i], err = s.Compile(expr, want); err != nil {
			t.Fatal(err)
		}
	}
	for _, in := range inputs {
		var out [2]T
		var errs [2]string
		for i, p := range programs {
			var err error
			if out[i], err = run(p, t.Context(), scopes[i].Bind(in, nil)); err != nil {
				errs[i] = err.Error()
			}
		}
		if diff := cmp.Diff(out[1], out[0], cmpopts.EquateEmpty()); diff != "" || errs[0] != errs[1] {
			t.Errorf("%s\non %v gives the error %q, want %q (-want +got):\n%s", expr, in.Object, errs[0], errs[1], diff)
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
	return []any{"v", "w", "r/v:1", "p", int64(1), 1.0, true, nil}[rnd.IntN(8)]
}
