package openapi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/tree"
)

// A server, and its documents, may be older or newer than the Go types of this package. This
// file handles the fields that only one of the two has.

// undeclared returns an error for fields of after that the place does not declare, with the
// text of strict decoding, as the in-tree plugin of such a server would. It visits only the
// differences between before and after.
func (p Place) undeclared(before, after map[string]any) error {
	unknown := p.appendUndeclared(nil, "", before, after)
	if len(unknown) == 0 {
		return nil
	}
	// Wrapped, since the error is not one of the decoder.
	return fmt.Errorf("%w", api.UnknownFields(unknown))
}

// appendUndeclared appends the path of every field that is not declared.
func (p Place) appendUndeclared(unknown []string, path string, before, after any) []string {
	if p.schema == nil || tree.Same(before, after) {
		return unknown
	}
	switch after := after.(type) {
	case map[string]any:
		before, _ := before.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(after)) {
			old, had := before[key]
			if had && tree.Same(old, after[key]) {
				continue
			}
			at := strings.TrimPrefix(path+"."+key, ".")
			if p.Refuses(key) {
				unknown = append(unknown, at)
				continue
			}
			next, _ := p.Field(key)
			unknown = next.appendUndeclared(unknown, at, old, after[key])
		}
	case []any:
		before, _ := before.([]any)
		element, _ := p.Element()
		for i, v := range after {
			if end := len(before) - len(after) + i; end >= 0 && end < len(before) && tree.Same(before[end], v) {
				continue
			}
			var old any
			if i < len(before) {
				old = before[i]
			}
			unknown = element.appendUndeclared(unknown, fmt.Sprintf("%s[%d]", path, i), old, v)
		}
	}
	return unknown
}

// An extra is a field that the document declares and the Go type lacks. A round trip through
// the Go type would reject it, so it is removed before and added again after.
type extra struct {
	path  []any // string or int
	value any
}

// withoutExtras returns obj without its extras, and the extras. obj is not
// modified.
func (k *Kind) withoutExtras(obj map[string]any) (map[string]any, []extra) {
	p, ok := k.Root()
	if !ok {
		return obj, nil
	}
	extras := appendExtras(nil, nil, p, k.goType.root.shape, obj)
	for _, e := range extras {
		obj = editAt(obj, e.path, func(m map[string]any, key string) { delete(m, key) }).(map[string]any)
	}
	return obj, extras
}

// withExtras adds extras again. If the round trip removed the parent of a field, since it was
// empty otherwise, the parent is added too.
func withExtras(obj map[string]any, extras []extra) map[string]any {
	for _, e := range extras {
		obj = editAt(obj, e.path, func(m map[string]any, key string) { m[key] = e.value }).(map[string]any)
	}
	return obj
}

// appendExtras appends the extras in v, which are fields of structs.
func appendExtras(found []extra, path []any, p Place, sh *shape, v any) []extra {
	sh = sh.target()
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			at := append(path, key)
			switch m := sh.member(key); {
			case m != nil:
				next, _ := p.Field(key)
				found = appendExtras(found, at, next, m.shape, v[key])
			case sh.form == structure && p.Declares(key):
				found = append(found, extra{path: slices.Clone(at), value: v[key]})
			}
		}
	case []any:
		element, _ := p.Element()
		for i, e := range v {
			if sh.items != nil {
				found = appendExtras(found, append(path, i), element, sh.items.shape, e)
			}
		}
	}
	return found
}

// editAt returns v after calling edit with the map that holds the last name of path. It copies
// the maps and lists on the way, and creates missing ones.
func editAt(v any, path []any, edit func(m map[string]any, key string)) any {
	switch step := path[0].(type) {
	case string:
		m, _ := v.(map[string]any)
		if m = maps.Clone(m); m == nil {
			m = map[string]any{}
		}
		if len(path) == 1 {
			edit(m, step)
		} else {
			m[step] = editAt(m[step], path[1:], edit)
		}
		return m
	case int:
		l, _ := v.([]any)
		l = slices.Clone(l)
		for len(l) <= step {
			l = append(l, nil)
		}
		l[step] = editAt(l[step], path[1:], edit)
		return l
	}
	return v
}
