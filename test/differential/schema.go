package differential

import (
	"maps"
	"slices"
)

// shape is the part of a schema that the generator needs to write values,
// apply configurations and JSON pointers that mostly fit.
type shape struct {
	kind   string // struct, map, list, string, int, bool, double, quantity, intstr, bytes, any, embedded
	fields []field
	elem   *shape
	keys   []string // list maps: their keys
	set    bool
	must   []string // fields that every generated value has
	pool   []string // strings to choose from

	// Only in the schemas of custom resources.
	atomic   bool // a map, struct or list of which nothing can be merged
	open     bool // a struct that keeps unknown fields
	nullable bool
	def      any
}

type field struct {
	name string
	of   *shape
}

func str(pool ...string) *shape { return &shape{kind: "string", pool: pool} }
func list(elem *shape) *shape   { return &shape{kind: "list", elem: elem} }
func dict(elem *shape) *shape   { return &shape{kind: "map", elem: elem} }
func set(elem *shape) *shape    { return &shape{kind: "list", elem: elem, set: true} }

func listMap(elem *shape, keys ...string) *shape {
	return &shape{kind: "list", elem: elem, keys: keys}
}

func object(must []string, fields ...field) *shape {
	return &shape{kind: "struct", fields: fields, must: must}
}

// with changes a copy of a shape.
func (s *shape) with(change func(*shape)) *shape {
	out := *s
	change(&out)
	return &out
}

func (s *shape) orElse(v any) *shape { return s.with(func(s *shape) { s.def = v }) }
func (s *shape) null() *shape        { return s.with(func(s *shape) { s.nullable = true }) }
func (s *shape) whole() *shape       { return s.with(func(s *shape) { s.atomic = true }) }

func (s *shape) field(name string) *shape {
	for _, f := range s.fields {
		if f.name == name {
			return f.of
		}
	}
	return nil
}

// structural is the schema of a shape as a CustomResourceDefinition has it.
func (s *shape) structural() map[string]any {
	out := map[string]any{}
	switch s.kind {
	case "struct":
		properties := map[string]any{}
		for _, f := range s.fields {
			properties[f.name] = f.of.structural()
		}
		out["type"], out["properties"] = "object", properties
	case "map":
		out["type"], out["additionalProperties"] = "object", s.elem.structural()
	case "list":
		out["type"], out["items"] = "array", s.elem.structural()
	case "any":
		out["type"], out["x-kubernetes-preserve-unknown-fields"] = "object", true
	case "embedded":
		out["type"], out["x-kubernetes-preserve-unknown-fields"] = "object", true
		out["x-kubernetes-embedded-resource"] = true
	case "int":
		out["type"] = "integer"
	case "double":
		out["type"] = "number"
	case "bool":
		out["type"] = "boolean"
	case "intstr":
		out["x-kubernetes-int-or-string"] = true
	default:
		out["type"] = "string"
	}
	switch {
	case len(s.keys) > 0:
		out["x-kubernetes-list-type"], out["x-kubernetes-list-map-keys"] = "map", s.keys
	case s.set:
		out["x-kubernetes-list-type"] = "set"
	case s.atomic && s.kind == "list":
		out["x-kubernetes-list-type"] = "atomic"
	case s.atomic:
		out["x-kubernetes-map-type"] = "atomic"
	}
	if s.open {
		out["x-kubernetes-preserve-unknown-fields"] = true
	}
	if s.nullable {
		out["nullable"] = true
	}
	if s.def != nil {
		out["default"] = s.def
	}
	if len(s.keys) > 0 {
		// A key is there or has a default.
		var required []any
		for _, k := range s.keys {
			if f := s.elem.field(k); f.def == nil {
				required = append(required, k)
			}
		}
		out["items"].(map[string]any)["required"] = required
	}
	return out
}

// definition is a CustomResourceDefinition whose versions have the given
// roots.
func definition(group, kind, plural string, namespaced bool, versions map[string]*shape) map[string]any {
	scope := "Cluster"
	if namespaced {
		scope = "Namespaced"
	}
	var served []any
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		properties := map[string]any{}
		for _, f := range versions[name].fields {
			if f.name != "metadata" {
				properties[f.name] = f.of.structural()
			}
		}
		served = append(served, map[string]any{
			"name": name, "served": true, "storage": len(served) == 0,
			"subresources": map[string]any{"status": map[string]any{}, "scale": map[string]any{
				"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": properties}},
		})
	}
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group},
		"spec": map[string]any{"group": group, "scope": scope, "versions": served,
			"names": map[string]any{"kind": kind, "plural": plural, "singular": plural, "listKind": kind + "List"}},
	}
}

// schema makes a random shape that a CustomResourceDefinition can have.
func (g *gen) schema(depth int) *shape {
	leaf := func() *shape {
		s := []*shape{words, integer, boolean, double, intstr, names}[g.n(6)]
		if g.chance(15) {
			s = s.null()
		}
		if g.chance(15) {
			s = s.orElse(g.value(s, 3))
		}
		return s
	}
	if depth >= 4 {
		return leaf()
	}
	switch g.n(9) {
	case 0, 1, 2:
		s := object(nil)
		for _, name := range []string{"a", "b", "c", "d", "n"}[:1+g.n(5)] {
			s.fields = append(s.fields, field{name, g.schema(depth + 1)})
		}
		s.atomic, s.open, s.nullable = g.chance(10), g.chance(10), g.chance(10)
		if g.chance(15) {
			s.def = map[string]any{}
		}
		return s
	case 3:
		s := dict(g.schema(depth + 1))
		s.atomic, s.nullable = g.chance(20), g.chance(10)
		return s
	case 4:
		item := g.schema(depth + 1)
		s := list(item)
		s.nullable = g.chance(10)
		return s
	case 5:
		return set(words)
	case 6, 7:
		item := object([]string{"name"}, field{"name", names})
		keys := []string{"name"}
		if g.chance(30) {
			item.fields = append(item.fields, field{"port", integer.orElse(int64(80))})
			keys = append(keys, "port")
		}
		for _, name := range []string{"a", "b", "c"}[:1+g.n(3)] {
			item.fields = append(item.fields, field{name, g.schema(depth + 1)})
		}
		item.atomic = g.chance(10)
		return listMap(item, keys...)
	case 8:
		return []*shape{anything, embedded}[g.n(2)]
	}
	return leaf()
}
