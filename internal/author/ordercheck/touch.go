package ordercheck

import (
	"slices"
	"strconv"

	"github.com/mapd-project/mapd/internal/lint"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/tree"
)

// member is an invocation: a policy with one binding and one parameter.
type member struct {
	name  identity
	shown string
	// reads decide whether the mutations run and, for mutations that have run, what they do.
	// later are the reads of mutations that have not run yet.
	reads, later []lint.Read
	// foreign: the policy sees the object in another version than the request's, so its paths
	// cannot be compared.
	foreign bool
	writes  map[string]write // of all runs, by path
}

// identity names an invocation as steps do.
type identity struct{ policy, binding, param string }

func identityOf(inv *binding.Invocation) identity {
	id := identity{policy: inv.Policy.Name(), binding: inv.Binding}
	if inv.Params != nil {
		id.param = inv.Params.GetName()
		if ns := inv.Params.GetNamespace(); ns != "" {
			id.param = ns + "/" + id.param
		}
	}
	return id
}

// write is a part of the object that an invocation changed.
type write struct {
	path []string
	// made: the part may have been missing before, and now contains other writes. That matters to
	// reads of whether the part exists.
	made bool
}

// note adds what a step read and changed, and reports whether that is new. request is the
// object of the request.
func (m *member) note(s *engine.Step, request map[string]any) (more bool) {
	if s.Mutation < 0 {
		return false
	}
	if len(m.later) > 0 {
		m.reads, m.later, more = slices.Concat(m.reads, m.later), nil, true
	}
	if s.Outcome != engine.Changed || s.Before == nil || s.After == nil {
		return more
	}
	keep := func(path []string, made bool) {
		key := strconv.FormatBool(made)
		for _, p := range path {
			key += "\x00" + p
		}
		if _, ok := m.writes[key]; !ok {
			m.writes[key], more = write{append([]string(nil), path...), made}, true
		}
	}
	add := func(path []string, made bool) {
		keep(path, made)
		for i := range path {
			// In another order, the parent may not have been created before.
			if missing(request, path[:i]) {
				keep(path[:i], true)
			}
		}
	}
	if m.foreign {
		keep(nil, false)
		return more
	}
	var walk func(path []string, before, after any)
	walk = func(path []string, before, after any) {
		if tree.Equal(before, after) {
			return
		}
		b, wasMap := before.(map[string]any)
		switch a := after.(type) {
		case map[string]any:
			if before == nil && len(a) > 0 {
				add(path, true)
			} else if !wasMap {
				break
			}
			for k, y := range a {
				x, had := b[k]
				if !had && y == nil {
					add(append(path, k), false)
				}
				walk(append(path, k), x, y)
			}
			for k := range b {
				if _, has := a[k]; !has {
					add(append(path, k), false)
				}
			}
			return
		case []any:
			b, wasList := before.([]any)
			switch {
			case !wasList:
			case len(a) != len(b):
				add(append(path, lint.AnyElement), false)
				return
			default:
				for i := range a {
					if renamed(b[i], a[i]) {
						add(append(path, lint.AnyElement), false)
					} else {
						walk(append(path, lint.AnyElement), b[i], a[i])
					}
				}
				return
			}
		}
		add(path, false)
	}
	walk(nil, s.Before.Object, s.After.Object)
	return more
}

// missing reports whether an object may lack a part.
func missing(v any, path []string) bool {
	for _, step := range path {
		m, ok := v.(map[string]any)
		if v = m[step]; !ok || v == nil {
			return true
		}
	}
	return false
}

// renamed reports whether an element of a list has become another one.
func renamed(before, after any) bool {
	a, _ := before.(map[string]any)
	b, _ := after.(map[string]any)
	for k := range a {
		if tree.Identifies(k) && !tree.Equal(a[k], b[k]) {
			return true
		}
	}
	for k := range b {
		if tree.Identifies(k) && a[k] == nil {
			return true
		}
	}
	return false
}

// touch reports whether the order of two invocations may matter.
func touch(a, b *member) bool {
	for _, w := range b.writes {
		for _, other := range a.writes {
			if !w.made && !other.made && within(w.path, other.path) {
				return true
			}
		}
	}
	return readsWhat(a, b) || readsWhat(b, a)
}

// readsWhat reports whether r reads what w writes.
func readsWhat(r, w *member) bool {
	for _, w := range w.writes {
		for _, read := range r.reads {
			if reads(read, w) {
				return true
			}
		}
	}
	return false
}

func reads(r lint.Read, w write) bool {
	switch r.How {
	case lint.Presence:
		return len(w.path) <= len(r.Path) && within(w.path, r.Path)
	case lint.Elements:
		return len(w.path) <= len(r.Path)+1 && within(w.path, r.Path)
	case lint.Place:
		return within(w.path, r.Path)
	}
	return !w.made && within(w.path, r.Path)
}

// within reports whether one of two paths begins with the other.
func within(a, b []string) bool {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] && a[i] != lint.AnyElement && b[i] != lint.AnyElement {
			return false
		}
	}
	return true
}
