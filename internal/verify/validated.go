package verify

import (
	"fmt"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// afterValidation applies to a result the part of the validation after admission that
// matters here: policies may rely on unique keys in a list, because both sides
// refuse an object with repeated keys in the end.
func (p *part) afterValidation(r Result) Result {
	for _, path := range p.unique {
		if r.Refused == "" && repeats(r.Object, path) {
			return Result{Refused: fmt.Sprintf("an API server refuses that two elements of %s have the same key", path)}
		}
	}
	return r
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
func equalJSON(a, b map[string]any) bool { return tree.Equal(plain(a), plain(b)) }

// same reports whether two results agree: both refused, for whatever reason, or
// equal as they are stored.
func (r *request) same(a, b Result) bool {
	if a.Refused != "" || b.Refused != "" {
		return a.Refused != "" && b.Refused != ""
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
