package verify

import (
	"fmt"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// afterValidation applies to a result the part of the validation after admission that
// matters here: policies may rely on unique keys in a list, and on an element in
// spec.containers, because an API server refuses all other objects in the end.
func (p *part) afterValidation(req *request, r Result) Result {
	for _, path := range p.unique {
		if r.Refused == "" && repeats(r.Object, path) {
			return Result{Refused: fmt.Sprintf("an API server refuses that two elements of %s have the same key", path)}
		}
	}
	for _, path := range p.filled {
		if r.Refused == "" && req.kind != nil && req.kind.Builtin() && isEmpty(r.Object, path) {
			return Result{Refused: fmt.Sprintf("an API server refuses that %s is empty", path)}
		}
	}
	return r
}

// isEmpty reports whether the list at path exists and has no element, which null has
// neither.
func isEmpty(obj map[string]any, path legacy.Path) bool {
	for _, n := range path[:len(path)-1] {
		obj, _ = obj[n.Name].(map[string]any)
	}
	v, ok := obj[path[len(path)-1].Name]
	l, isList := v.([]any)
	return ok && (v == nil || isList && len(l) == 0)
}

// repeats reports whether two elements of the list that path globs have the
// same key, a missing key included.
func repeats(v any, path legacy.Path) bool {
	if len(path) == 0 {
		return false
	}
	n := path[0]
	if !n.List {
		m, _ := v.(map[string]any)
		return m[n.Name] != nil && repeats(m[n.Name], path[1:])
	}
	l, _ := v.([]any)
	seen := map[any]bool{}
	for _, e := range l {
		m, ok := e.(map[string]any)
		if !ok {
			continue
		}
		if len(path) > 1 {
			if repeats(m, path[1:]) {
				return true
			}
			continue
		}
		switch key := m[n.Name].(type) {
		case map[string]any, []any:
		default:
			if seen[key] {
				return true
			}
			seen[key] = true
		}
	}
	return false
}

// equalJSON compares as JSON.
func equalJSON(a, b map[string]any) bool { return tree.Equal(a, b) || tree.Equal(plain(a), plain(b)) }

// same reports whether two results agree: both refused, for whatever reason, or
// equal as they are stored.
func (r *request) same(a, b Result) bool {
	if a.Refused != "" || b.Refused != "" {
		return a.Refused != "" && b.Refused != ""
	}
	if tree.Equal(a.Object, b.Object) {
		return true
	}
	if r.kind != nil && r.kind.Builtin() {
		return tree.Equal(packed(plain(a.Object)), packed(plain(b.Object)))
	}
	return equalJSON(a.Object, b.Object)
}

// packed returns a tree as protocol buffers store it, which built-in kinds are
// stored in: without empty lists.
func packed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			if l, ok := e.([]any); e != nil && (!ok || len(l) > 0) {
				out[k] = packed(e)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = packed(e)
		}
		return out
	}
	return v
}
