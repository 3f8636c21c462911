package gatekeeper

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// shrink takes away from a case what it can, as long as fails still says so.
func shrink(c Case, fails func(Case) bool) Case {
	for again := true; again; {
		again = false
		for _, smaller := range reductions(c) {
			if fails(smaller) {
				c, again = smaller, true
				break
			}
		}
	}
	return c
}

// reductions are the cases that lack one thing.
func reductions(c Case) []Case {
	var all []Case
	for i := range c.Mutators {
		next := c
		next.Mutators = slices.Delete(slices.Clone(c.Mutators), i, i+1)
		all = append(all, next)
	}
	for i, m := range c.Mutators {
		for _, tree := range less(m.Object) {
			next := c
			next.Mutators = slices.Clone(c.Mutators)
			next.Mutators[i] = &unstructured.Unstructured{Object: tree.(map[string]any)}
			all = append(all, next)
		}
	}
	for _, tree := range less(c.Request.Object) {
		next := c
		next.Request.Object = tree.(map[string]any)
		all = append(all, next)
	}
	return all
}

// kept are fields without which nothing is what it was.
var kept = []string{"apiVersion", "kind", "metadata", "name", "applyTo", "location"}

// less returns copies of a tree, each of which lacks one member or element.
func less(v any) []any {
	var all []any
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if !slices.Contains(kept, key) {
				next := maps.Clone(v)
				delete(next, key)
				all = append(all, runtime.DeepCopyJSON(next))
			}
			for _, smaller := range less(v[key]) {
				next := maps.Clone(v)
				next[key] = smaller
				all = append(all, runtime.DeepCopyJSON(next))
			}
		}
	case []any:
		for i := range v {
			all = append(all, slices.Delete(slices.Clone(v), i, i+1))
			for _, smaller := range less(v[i]) {
				next := slices.Clone(v)
				next[i] = smaller
				all = append(all, next)
			}
		}
	}
	return all
}
