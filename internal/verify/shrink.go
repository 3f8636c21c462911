package verify

import (
	"context"
	"maps"
	"slices"

	"github.com/mapd-project/mapd/pkg/openapi"
)

// shrinkSteps bounds the objects that are tried: each costs a run of both sides.
const shrinkSteps = 2000

// shrink reduces a disagreement: whatever can be left out while the two sides
// still disagree is left out, large things first.
func (p *part) shrink(ctx context.Context, types *openapi.Types, r *request, origin string) *Disagreement {
	o := Object{Object: r.object, Old: r.old, Operation: r.operation, Namespace: r.namespace}
	steps := 0
	try := func(o Object) bool {
		if steps++; steps > shrinkSteps || ctx.Err() != nil {
			return false
		}
		r := requests(types, o)[0]
		return r != nil && !same(p.reference.run(ctx, r), p.native.run(ctx, r))
	}
	if o.Operation == update {
		if c := (Object{Object: o.Object, Operation: create, Namespace: o.Namespace}); try(c) {
			o = c
		}
	}
	o.Object = reduce(o.Object, essential, func(m map[string]any) bool {
		c := o
		c.Object = m
		return try(c)
	})
	if o.Old != nil {
		o.Old = reduce(o.Old, essential, func(m map[string]any) bool {
			c := o
			c.Old = m
			return try(c)
		})
	}
	if o.Namespace != nil {
		o.Namespace = reduce(o.Namespace, essential, func(m map[string]any) bool {
			c := o
			c.Namespace = m
			return try(c)
		})
	}
	// The results are of the request that a server would have seen, which has
	// again what no object of the kind is without.
	r = requests(types, o)[0]
	return &Disagreement{
		Origin: origin, Operation: o.Operation,
		Object: r.object, Old: r.old, Namespace: r.namespace,
		Reference: p.reference.run(ctx, r), Native: p.native.run(ctx, r),
	}
}

// essential are the fields without which an object is none.
func essential(path []string) bool {
	switch len(path) {
	case 1:
		return path[0] == "apiVersion" || path[0] == "kind" || path[0] == "metadata"
	case 2:
		return path[0] == "metadata" && (path[1] == "name" || path[1] == "namespace")
	}
	return false
}

// reduce leaves out of m what it can, for as long as keeps says that the rest
// still shows what is wanted.
func reduce(m map[string]any, keep func(path []string) bool, shows func(map[string]any) bool) map[string]any {
	for {
		before := m
		for depth := 1; ; depth++ {
			found := paths(m, depth)
			if len(found) == 0 {
				break
			}
			// From the end, so that a list's other elements stay where they were.
			for _, path := range slices.Backward(found) {
				if keep(names(path)) {
					continue
				}
				if c := without(m, path).(map[string]any); shows(c) {
					m = c
				}
			}
		}
		if len(m) == len(before) && equalJSON(m, before) {
			return m
		}
	}
}

// paths are those of all members and elements at a depth, in order. A step is a
// string or an int.
func paths(v any, depth int) [][]any {
	if depth == 0 {
		return [][]any{nil}
	}
	var out [][]any
	below := func(step, v any) {
		for _, p := range paths(v, depth-1) {
			out = append(out, append([]any{step}, p...))
		}
	}
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			below(k, v[k])
		}
	case []any:
		for i, e := range v {
			below(i, e)
		}
	}
	return out
}

func names(path []any) []string {
	out := make([]string, len(path))
	for i, s := range path {
		out[i], _ = s.(string)
	}
	return out
}

// without is v less what stands at path.
func without(v any, path []any) any {
	switch step := path[0].(type) {
	case string:
		m := maps.Clone(v.(map[string]any))
		if len(path) == 1 {
			delete(m, step)
		} else {
			m[step] = without(m[step], path[1:])
		}
		return m
	case int:
		l := slices.Clone(v.([]any))
		if len(path) == 1 {
			return slices.Delete(l, step, step+1)
		}
		l[step] = without(l[step], path[1:])
		return l
	}
	return v
}
