package legacy_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/direct"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/hammer"
)

// rig is a source of mutators that get in each other's way, and of objects in
// which they do.
type rig struct{ *rand.Rand }

func newRig(seed uint64) rig { return rig{rand.New(rand.NewPCG(seed, 7))} }

func pick[T any](r rig, of ...T) T { return of[r.IntN(len(of))] }

func (r rig) percent(n int) bool { return r.IntN(100) < n }

// locations agree about the shape of objects, for the most part.
var locations = []string{
	"spec.a", "spec.a.b", "spec.a.c", "spec.a.b.c",
	"spec.l[k: %]", "spec.l[k: %].a", "spec.l[k: %].a.b", "spec.l[k: %].b",
	"spec.l[k: %].m[k: %]", "spec.l[k: %].m[k: %].a", "spec.l[k: %].m[k: %].b",
	"spec.l", "spec.s", "spec.a.s", "spec.l[k: %].s", "spec.i", "spec.l[k: %].i",
}

func (r rig) location(of ...string) string {
	l := pick(r, of...)
	for strings.Contains(l, "%") {
		l = strings.Replace(l, "%", pick(r, "v", "w", "*"), 1)
	}
	return l
}

func (r rig) mutator(i int) map[string]any {
	kind := pick(r, "Assign", "Assign", "Assign", "AssignMetadata", "AssignImage", "ModifySet", "ModifySet")
	spec := map[string]any{}
	params := map[string]any{}
	switch kind {
	case "AssignMetadata":
		spec["location"] = "metadata." + pick(r, "labels", "labels", "annotations") + "." + pick(r, "x", "y", "z")
		params["assign"] = map[string]any{"value": pick(r, "1", "2")}
	case "AssignImage":
		spec["location"] = r.location("spec.i", "spec.l[k: %].i")
		for range 1 + r.IntN(2) {
			switch r.IntN(3) {
			case 0:
				params["assignDomain"] = pick(r, "d.io", "e.io:5")
			case 1:
				params["assignPath"] = pick(r, "p", "p/q", "n.w")
			default:
				params["assignTag"] = pick(r, ":t", ":u")
			}
		}
	case "ModifySet":
		spec["location"] = r.location("spec.s", "spec.s", "spec.a.s", "spec.l[k: %].s")
		params["operation"] = pick(r, "merge", "merge", "prune")
		list := []any{}
		for range r.IntN(4) {
			list = append(list, pick(r, "p", "q", "r"))
		}
		params["values"] = map[string]any{"fromList": list}
	default:
		spec["location"] = r.location(locations...)
		params["assign"] = map[string]any{"value": r.valueAt(spec["location"].(string))}
	}
	if kind != "AssignMetadata" {
		apply := map[string]any{"groups": []any{""}, "versions": []any{"v1"}, "kinds": []any{"Pod"}}
		if r.percent(10) {
			apply["operations"] = []any{"UPDATE"}
		}
		spec["applyTo"] = []any{apply}
		if tests := r.tests(spec["location"].(string)); tests != nil {
			params["pathTests"] = tests
		}
	}
	spec["parameters"] = params
	if r.percent(30) {
		spec["match"] = map[string]any{"labelSelector": r.selector()}
	}
	version := "v1"
	if kind == "AssignImage" {
		version = "v1alpha1"
	}
	return map[string]any{
		"apiVersion": "mutations.gatekeeper.sh/" + version, "kind": kind,
		"metadata": map[string]any{"name": fmt.Sprintf("m%d", i)},
		"spec":     spec,
	}
}

func (r rig) tests(location string) []any {
	path, err := legacy.ParsePath(location)
	if err != nil || !r.percent(50) {
		return nil
	}
	return []any{map[string]any{
		"subPath":   path[:1+r.IntN(len(path))].String(),
		"condition": pick(r, "MustExist", "MustNotExist", "MustNotExist"),
	}}
}

func (r rig) selector() map[string]any {
	key := pick(r, "x", "y", "z")
	switch r.IntN(3) {
	case 0:
		return map[string]any{"matchLabels": map[string]any{key: pick(r, "1", "2")}}
	case 1:
		return map[string]any{"matchExpressions": []any{map[string]any{"key": key, "operator": pick(r, "Exists", "DoesNotExist")}}}
	default:
		return map[string]any{"matchExpressions": []any{map[string]any{"key": key, "operator": pick(r, "In", "NotIn"), "values": []any{"1"}}}}
	}
}

// valueAt is usually of the type that other mutators expect at a location.
func (r rig) valueAt(location string) any {
	path, _ := legacy.ParsePath(location)
	last := path[len(path)-1]
	if last.List {
		e := r.element()
		e[last.Name] = last.Value
		return e
	}
	if r.percent(5) {
		return pick[any](r, "p", map[string]any{}, []any{})
	}
	switch last.Name {
	case "a":
		return pick[any](r, map[string]any{}, map[string]any{"b": map[string]any{}}, map[string]any{"s": []any{"q"}}, map[string]any{"c": "1"})
	case "l", "m":
		return r.elements()
	case "s":
		return pick[any](r, []any{}, []any{"p"}, []any{"q", "p"})
	case "i":
		return pick[any](r, "n", "foo@bar/baz", "h.io/n:1")
	default:
		return pick[any](r, "1", map[string]any{}, map[string]any{"c": "2"})
	}
}

func (r rig) element() map[string]any {
	e := map[string]any{}
	for _, name := range []string{"a", "b", "m", "s", "i"} {
		if r.percent(25) {
			e[name] = r.valueAt(name)
		}
	}
	return e
}

func (r rig) elements() []any {
	list := []any{}
	for range r.IntN(4) {
		e := map[string]any{"k": pick(r, "v", "w", "u")}
		if r.percent(60) {
			for k, v := range r.element() {
				e[k] = v
			}
		}
		list = append(list, e)
	}
	return list
}

func (r rig) object() map[string]any {
	spec := map[string]any{}
	for _, name := range []string{"a", "l", "s", "i"} {
		if r.percent(50) {
			spec[name] = r.valueAt(name)
		}
	}
	meta := map[string]any{"name": "p"}
	if r.percent(50) {
		meta["labels"] = map[string]any{pick(r, "x", "y", "z"): "1"}
	}
	obj := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": meta}
	if r.percent(80) {
		obj["spec"] = spec
	}
	return obj
}

// mutators are up to n that Gatekeeper would run together, in its order.
func (r rig) mutators(n int) []*legacy.Mutator {
	var ms []*legacy.Mutator
	for i := range n {
		if m, err := legacy.Decode(&unstructured.Unstructured{Object: r.mutator(i)}); err == nil {
			ms = append(ms, m)
		}
	}
	off := legacy.Conflicts(ms)
	ms = slices.DeleteFunc(ms, func(m *legacy.Mutator) bool { _, ok := off[m.ID()]; return ok })
	slices.SortFunc(ms, legacy.Compare)
	return ms
}

// pass runs mutators once. An error is part of the result.
func pass(ms []*legacy.Mutator, obj map[string]any) (map[string]any, string) {
	c := direct.Context{Operation: "UPDATE", Source: "Original"}
	for _, m := range ms {
		ok, err := direct.Matches(m, obj, c)
		if err != nil {
			return obj, err.Error()
		}
		if !ok {
			continue
		}
		next, _, err := direct.Apply(pruneWhatIs(m), obj, c)
		if err != nil {
			return obj, "failed"
		}
		obj = next
	}
	return obj, ""
}

// pruneWhatIs is the mutator, but if it prunes, only where there is a list:
// package direct creates the way to it, which mapd does not.
func pruneWhatIs(m *legacy.Mutator) *legacy.Mutator {
	last := len(m.Location) - 1
	if m.Set == nil || !m.Set.Prune {
		return m
	}
	test := legacy.PathTest{Depth: last, Condition: legacy.MustExist}
	if c, tested := m.Test(last); tested && c != legacy.MustExist {
		test.Condition = "Never"
	}
	c := *m
	c.Tests = append(slices.DeleteFunc(slices.Clone(m.Tests), func(t legacy.PathTest) bool { return t.Depth == last }), test)
	return &c
}

// passes runs at most n passes.
func passes(ms []*legacy.Mutator, obj map[string]any, n int) (map[string]any, string) {
	for range n {
		next, err := pass(ms, obj)
		if err != "" || tree.Equal(next, obj) {
			return next, err
		}
		obj = next
	}
	return obj, ""
}

// enough passes for everything that ends.
const enough = 20

func describe(ms []*legacy.Mutator) string {
	var b strings.Builder
	for _, m := range ms {
		fmt.Fprintf(&b, "%s at %s tests %v match %v %v\n", m.ID(), m.Location, m.Tests, m.Object["spec"].(map[string]any)["match"], m.Object["spec"].(map[string]any)["parameters"])
	}
	return b.String()
}

func checkComponents(t *testing.T, seed uint64) (rounds [4]int) {
	r := newRig(seed)
	ms := r.mutators(2 + r.IntN(4))
	components := legacy.Components(ms)
	for _, c := range components {
		rounds[c.Rounds]++
	}
	for range 4 {
		obj := r.object()
		for _, c := range components {
			if c.Rounds >= 3 {
				continue
			}
			want, wantErr := passes(c.Members, obj, enough)
			got, gotErr := passes(c.Members, obj, c.Rounds)
			if wantErr != gotErr || wantErr == "" && !tree.Equal(want, got) {
				t.Fatalf("seed %d: %d rounds (%s) of\n%sover %v:\ngive %v %s\nall  %v %s", seed, c.Rounds, c.Why, describe(c.Members), obj, got, gotErr, want, wantErr)
			}
		}
		want, wantErr := passes(ms, obj, enough)
		got, gotErr := obj, ""
		for _, i := range r.Perm(len(components)) {
			if gotErr == "" {
				got, gotErr = passes(components[i].Members, got, enough)
			}
		}
		if wantErr != gotErr || wantErr == "" && !tree.Equal(want, got) {
			t.Fatalf("seed %d: %d components of\n%sover %v:\n%s", seed, len(components), describe(ms), obj, cmp.Diff(want, got))
		}
	}
	return rounds
}

// What Components says about rounds and about independence is true of what
// package direct does.
func TestComponents(t *testing.T) {
	hammer.Alone(t)
	var rounds [4]int
	for seed := range uint64(3_000) {
		for i, n := range checkComponents(t, seed) {
			rounds[i] += n
		}
	}
	t.Logf("components of 1, 2 and more rounds: %v", rounds[1:])
}

func FuzzComponents(f *testing.F) {
	f.Add(uint64(1_000_000))
	f.Fuzz(func(t *testing.T, seed uint64) { checkComponents(t, seed) })
}
