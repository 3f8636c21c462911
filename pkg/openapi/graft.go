package openapi

import (
	"maps"
	"slices"

	"github.com/mapd-project/mapd/pkg/tree"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
)

// A server may be newer than our Go types: its documents then declare fields
// that a round trip through a Go type would refuse. A graft is such a field,
// cut off before the round trip and put back after it.
type graft struct {
	path  []any // string or int
	value any
}

// A cutter cuts off the fields that a schema declares and a shape lacks. It
// copies what it changes.
type cutter struct {
	schema *smdschema.Schema
	path   []any
	grafts []graft
}

func newCutter(s *smdschema.Schema) *cutter { return &cutter{schema: s} }

func (c *cutter) cut(sh *shape, ref smdschema.TypeRef, v any) (any, []graft) {
	out := c.visit(sh, ref, v)
	return out, c.grafts
}

func (c *cutter) visit(sh *shape, ref smdschema.TypeRef, v any) any {
	for sh.form == pointer {
		sh = sh.elem
	}
	atom, ok := c.schema.Resolve(ref)
	if !ok {
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		if atom.Map == nil || sh.form != structure && sh.form != dict {
			return v
		}
		out, own := v, false
		for _, key := range sortedKeys(v) {
			declared, known := atom.Map.FindField(key)
			elem := sh.elem
			if sh.form == structure {
				f := sh.fields[key]
				if f == nil {
					if known {
						if !own {
							out, own = maps.Clone(v), true
						}
						delete(out, key)
						c.grafts = append(c.grafts, graft{path: append(slices.Clone(c.path), key), value: v[key]})
					}
					continue
				}
				elem = f.shape
			}
			next := atom.Map.ElementType
			if known {
				next = declared.Type
			}
			c.path = append(c.path, key)
			if w := c.visit(elem, next, v[key]); !sameContainer(w, v[key]) {
				if !own {
					out, own = maps.Clone(v), true
				}
				out[key] = w
			}
			c.path = c.path[:len(c.path)-1]
		}
		return out
	case []any:
		if atom.List == nil || sh.form != list {
			return v
		}
		out, own := v, false
		for i, e := range v {
			c.path = append(c.path, i)
			if w := c.visit(sh.elem, atom.List.ElementType, e); !sameContainer(w, e) {
				if !own {
					out, own = slices.Clone(v), true
				}
				out[i] = w
			}
			c.path = c.path[:len(c.path)-1]
		}
		return out
	}
	return v
}

// sameContainer reports whether visit left a value alone. Cutting removes a
// key from a copy or replaces an element by such a copy, never anything else.
func sameContainer(w, v any) bool {
	switch w := w.(type) {
	case map[string]any:
		v, ok := v.(map[string]any)
		return ok && tree.Same(w, v)
	case []any:
		v, ok := v.([]any)
		return ok && tree.Same(w, v)
	}
	return true
}

// grow puts grafts back into a fresh tree, which it may modify. A field whose
// parent did not survive the round trip, being empty without it, comes back
// with its parent.
func grow(root any, grafts []graft) any {
	for _, g := range grafts {
		root = put(root, g.path, g.value)
	}
	return root
}

func put(v any, path []any, value any) any {
	if len(path) == 0 {
		return value
	}
	switch step := path[0].(type) {
	case string:
		m, _ := v.(map[string]any)
		if m == nil {
			m = map[string]any{}
		} else {
			m = maps.Clone(m)
		}
		m[step] = put(m[step], path[1:], value)
		return m
	case int:
		l, _ := v.([]any)
		l = slices.Clone(l)
		for len(l) <= step {
			l = append(l, nil)
		}
		l[step] = put(l[step], path[1:], value)
		return l
	}
	return v
}
