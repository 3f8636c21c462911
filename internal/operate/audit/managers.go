package audit

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// managers returns the managedFields that an object should have after u was undone. Manager loses
// the fields of the write and of the undo, and other managers get back the fields that the write
// took from them. now is the object with its fields restored. changed: its managedFields are
// different.
func (u *Undo) managers(now *unstructured.Unstructured) (entries []any, changed bool) {
	before, after := managed(u.Before), managed(u.After)
	gone := fieldSet{}
	for _, e := range after {
		if e.manager == Manager {
			maps.Copy(gone, e.fields.without(before.of(e.managerKey)))
		}
	}
	all := managed(now.Object)
	for _, e := range all {
		if e.manager == Manager && e.operation == string(metav1.ManagedFieldsOperationUpdate) {
			maps.Copy(gone, e.fields.without(after.of(e.managerKey))) // what the undo wrote
		}
	}
	for i, e := range all {
		if e.manager != Manager {
			continue
		}
		if left := e.fields.without(gone); len(left) < len(e.fields) {
			all[i].fields, changed = left, true
		}
	}
	for _, e := range before {
		lost := e.fields.without(after.of(e.managerKey))
		lost = lost.without(lost.without(gone))
		lost = lost.without(all.of(e.managerKey))
		if len(lost) == 0 {
			continue
		}
		changed = true
		if at := all.index(e.managerKey); at >= 0 {
			maps.Copy(all[at].fields, lost)
		} else {
			e.fields = lost
			all = append(all, e)
		}
	}
	for _, e := range all {
		if len(e.fields) > 0 {
			raw := maps.Clone(e.raw)
			raw["fieldsV1"] = e.fields.encode()
			entries = append(entries, raw)
		}
	}
	if len(entries) == 0 {
		entries = []any{map[string]any{}} // an empty list would not change them
	}
	return entries, changed
}

// managerKey identifies an entry of managedFields.
type managerKey struct{ manager, operation, apiVersion, subresource string }

// managerEntry is an entry of managedFields. raw is the whole of it.
type managerEntry struct {
	managerKey
	fields fieldSet
	raw    map[string]any
}

type managerEntries []managerEntry

// managed returns the entries of an object's managedFields.
func managed(object map[string]any) (out managerEntries) {
	list, _, _ := unstructured.NestedFieldNoCopy(object, "metadata", "managedFields")
	entries, _ := list.([]any)
	for _, e := range entries {
		raw, _ := e.(map[string]any)
		text := func(name string) string {
			s, _ := raw[name].(string)
			return s
		}
		fields, _ := raw["fieldsV1"].(map[string]any)
		set := fieldSet{}
		set.decode("", fields)
		out = append(out, managerEntry{managerKey{text("manager"), text("operation"), text("apiVersion"), text("subresource")}, set, raw})
	}
	return out
}

func (m managerEntries) index(k managerKey) int {
	return slices.IndexFunc(m, func(e managerEntry) bool { return e.managerKey == k })
}

// of returns the fields of an entry, nil if there is none.
func (m managerEntries) of(k managerKey) fieldSet {
	if at := m.index(k); at >= 0 {
		return m[at].fields
	}
	return nil
}

// fieldSet has the fields of a set as managedFields have it: names such as f:spec, each after
// a NUL.
type fieldSet map[string]bool

// decode adds the fields of a set that are below a path.
func (s fieldSet) decode(path string, set map[string]any) {
	for name, v := range set {
		below, _ := v.(map[string]any)
		switch {
		case name == ".":
			s[path] = true
		case len(below) == 0:
			s[path+"\x00"+name] = true
		default:
			s.decode(path+"\x00"+name, below)
		}
	}
}

// encode is the inverse of decode.
func (s fieldSet) encode() map[string]any {
	root := map[string]any{}
	for path := range s {
		at := root
		for _, name := range strings.Split(path, "\x00")[1:] {
			next, ok := at[name].(map[string]any)
			if !ok {
				next = map[string]any{}
				at[name] = next
			}
			at = next
		}
		at["."] = map[string]any{}
	}
	collapse(root)
	return root
}

// collapse writes a field without others in it as {}.
func collapse(set map[string]any) {
	for name, v := range set {
		if below, ok := v.(map[string]any); ok && name != "." {
			if collapse(below); len(below) == 1 && below["."] != nil {
				set[name] = map[string]any{}
			}
		}
	}
}

// without returns the fields of s that are not in other.
func (s fieldSet) without(other fieldSet) fieldSet {
	out := fieldSet{}
	for path := range s {
		if !other[path] {
			out[path] = true
		}
	}
	return out
}
