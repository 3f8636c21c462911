package defaulting

import (
	"maps"
	"slices"
	"strings"
)

// A rule fills what is missing in one object of a tree.
type rule func(*object)

// object is an object of the tree, copied before its first change. A nil tree
// stands for an object that is missing and is created by that change: in a Go
// type, a nested struct always exists.
type object struct {
	tree   map[string]any
	copied bool
}

// text returns the string in a field, or "" if the field has another type.
func (o *object) text(field string) string { s, _ := o.tree[field].(string); return s }
func (o *object) list(field string) []any  { l, _ := o.tree[field].([]any); return l }
func (o *object) object(field string) map[string]any {
	m, _ := o.tree[field].(map[string]any)
	return m
}

// foreign reports whether a field holds something other than an object.
func (o *object) foreign(field string) bool { return o.tree[field] != nil && o.object(field) == nil }

func (o *object) put(field string, value any) {
	o.own()
	o.tree[field] = value
}

func (o *object) drop(field string) {
	if _, ok := o.tree[field]; ok {
		o.own()
		delete(o.tree, field)
	}
}

func (o *object) own() {
	if !o.copied {
		o.tree, o.copied = maps.Clone(o.tree), true
	}
	if o.tree == nil {
		o.tree = map[string]any{}
	}
}

// set gives a field a value if it is absent or null. It is for fields that are
// pointers in the Go type, where "" and 0 are somebody's choice.
func set(field string, value any) rule {
	return give(field, value, func(v any) bool { return v == nil })
}

// fill gives a field a value if it is empty. It is for fields that are not
// pointers in the Go type, where "" and 0 are the same as absence.
func fill(field string, value any) rule { return give(field, value, empty) }

func give(field string, value any, missing func(any) bool) rule {
	if n, ok := value.(int); ok {
		value = int64(n) // what a number of a tree is
	}
	return func(o *object) {
		if missing(o.tree[field]) {
			o.put(field, value)
		}
	}
}

// always gives a field its only possible value.
func always(field, value string) rule {
	return func(o *object) {
		if o.text(field) != value {
			o.put(field, value)
		}
	}
}

func empty(value any) bool {
	switch v := value.(type) {
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return value == nil || value == "" || value == int64(0) || value == float64(0)
}

// in applies rules to the objects that path leads to. A path is a sequence of
// field names: "spec" is a struct, which exists even where it was not written;
// "probe?" is a pointer, followed only where there is an object; "ports[]" is
// every object of a list.
func in(path string, rules ...rule) rule {
	step, rest, deeper := strings.Cut(path, ".")
	if deeper {
		rules = []rule{in(rest, rules...)}
	}
	if field, ok := strings.CutSuffix(step, "[]"); ok {
		return func(o *object) {
			if list, changed := applyToEach(o.list(field), rules); changed {
				o.put(field, list)
			}
		}
	}
	field, pointer := strings.CutSuffix(step, "?")
	return func(o *object) {
		if o.foreign(field) || pointer && o.tree[field] == nil {
			return
		}
		if tree, changed := apply(o.object(field), rules); changed {
			o.put(field, tree)
		}
	}
}

func apply(tree map[string]any, rules []rule) (map[string]any, bool) {
	o := object{tree: tree}
	for _, r := range rules {
		r(&o)
	}
	return o.tree, o.copied
}

func applyToEach(list []any, rules []rule) (out []any, changed bool) {
	out = list
	for i, item := range list {
		if tree, ok := item.(map[string]any); ok {
			if tree, ok = apply(tree, rules); ok {
				if !changed {
					out, changed = slices.Clone(list), true
				}
				out[i] = tree
			}
		}
	}
	return out, changed
}

// complete adds the members of from that the map in field lacks.
func complete(o *object, field string, from map[string]any) {
	in(field, func(to *object) {
		for key, value := range from {
			if _, ok := to.tree[key]; !ok {
				to.put(key, value)
			}
		}
	})(o)
}

// inStep keeps an old field with one value in step with the list that replaced
// it. The old field wins. The items of the list are objects with the value in
// the field by or, if by is "", the values themselves.
func inStep(single, list, by string) rule {
	return func(o *object) {
		value, first := o.text(single), ""
		if items := o.list(list); len(items) > 0 {
			item := object{tree: map[string]any{"": items[0]}}
			if by != "" {
				item.tree = item.object("")
			}
			first = item.text(by)
		}
		switch {
		case value == first:
		case value == "":
			fill(single, first)(o)
		case by == "":
			o.put(list, []any{value})
		default:
			o.put(list, []any{map[string]any{by: value}})
		}
	}
}
