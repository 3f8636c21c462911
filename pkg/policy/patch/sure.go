package patch

import (
	"slices"
	"strconv"
	"strings"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/policy/draft"
	"github.com/mapd-project/mapd/pkg/tree"
)

// This file decides which operations can be applied in place. Settling the one value and
// settling the whole object must have the same result, and the operation's path must be the one
// that a comparison of the object before and after finds.

// passes moves to a child of a container on the way to the value that an operation writes, and
// reports whether the path remains certain.
func (p *patching) passes(r *draft.Recent, at any, token string) bool {
	switch at := at.(type) {
	case map[string]any:
		r.InList = false
		return p.kind == nil || r.Spot.Field(token)
	case []any:
		r.InList, r.Through = true, true
		_, ok := position(token, at)
		// If several elements change, a comparison identifies them only by their names.
		return ok && (p.kind == nil || r.Spot.Element() && (p.ops == 1 || draft.AllNamed(at)))
	}
	return false
}

// write applies ops[n], and reports whether the outcome was certain.
func (p *patching) write(ops []cel.PatchOp, n int) bool {
	op := &ops[n]
	if p.kind == nil {
		if !strings.HasPrefix(op.Path, "/") {
			return false
		}
	} else {
		written := slices.ContainsFunc(ops[:n], func(op cel.PatchOp) bool { return op.Op != "test" })
		if op.Op == "test" {
			// A test of a partly settled object may have another result than one of the text.
			asIs := patching{draft: p.draft}
			return !written && asIs.test(op) == nil
		}
		if !plainPointer(op.Path) || op.Path == "/apiVersion" || op.Path == "/kind" {
			return false
		}
		if written && slices.ContainsFunc(ops[:n], func(o cel.PatchOp) bool { return overlap(o.Path, op.Path) && o.Op != "test" }) {
			return false
		}
	}
	key, ok := p.find(op.Path)
	if !ok {
		return false
	}
	switch at := p.draft.Edit.At().(type) {
	case map[string]any:
		return at != nil && p.writeMember(op, at, key)
	case []any:
		return at != nil && p.writeElement(op, at, key)
	}
	return false
}

// writeMember applies an operation to a member of the map at the cursor.
func (p *patching) writeMember(op *cel.PatchOp, at map[string]any, key string) bool {
	old, found := at[key]
	if p.ops > 1 && draft.IsContainer(old) {
		return false
	}
	token := tree.Token{Key: key}
	if p.kind == nil {
		return writes(op) && (found || op.Op == "add") && p.draft.Write(nil, token, old, found, op.Value, op.Path)
	}
	spot := p.draft.Recent.Spot
	// A comparison takes an element whose identity changes for another one.
	if p.draft.Recent.InList && tree.Identifies(key) {
		return false
	}
	if op.Op == "remove" {
		// Settling may remove a map that becomes empty.
		if !found || len(at) == 1 || !spot.Removable(key) {
			return false
		}
		p.draft.Remove(token, op.Path)
		return true
	}
	return writes(op) && (found || op.Op == "add") && spot.Field(key) && p.draft.Write(&spot, token, old, found, op.Value, op.Path)
}

// writeElement applies an operation to an element of the list at the cursor.
func (p *patching) writeElement(op *cel.PatchOp, at []any, key string) bool {
	// Adding at an index moves other elements.
	if !writes(op) || (op.Op == "add") != (key == "-") || p.kind != nil && p.ops > 1 {
		return false
	}
	path, old, found := op.Path, any(nil), false
	i := len(at)
	if key == "-" {
		path = strings.TrimSuffix(path, "-") + strconv.Itoa(i)
	} else if i, found = position(key, at); found {
		old = at[i]
	} else {
		return false
	}
	if p.ops > 1 && draft.IsContainer(old) {
		return false
	}
	token := tree.Token{Index: i}
	if p.kind == nil {
		return p.draft.Write(nil, token, old, found, op.Value, path)
	}
	spot := p.draft.Recent.Spot
	return spot.Element() && !(found && (identified(old) || identified(op.Value))) && p.draft.Write(&spot, token, old, found, op.Value, path)
}

// writes reports whether an operation writes an explicit value.
func writes(op *cel.PatchOp) bool { return (op.Op == "add" || op.Op == "replace") && op.HasValue }

// identified reports whether a value, as an element of a list, may have an identity.
func identified(v any) bool {
	m, _ := v.(map[string]any)
	return len(m) > 0
}

// overlap reports whether two JSON pointers are equal or one leads to a part of the other's
// value.
func overlap(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	return b[:len(a)] == a && (len(a) == len(b) || b[len(a)] == '/')
}

// position reads the index of an element that is there, as tree writes it.
func position(token string, list []any) (int, bool) {
	i, err := strconv.Atoi(token)
	return i, err == nil && i < len(list) && token[0] >= '0' && token[0] <= '9' && (token[0] != '0' || len(token) == 1)
}

// plainPointer reports whether a path is a JSON pointer to a part of the document that has only
// one form, the one in which tree writes it, and that the in-tree plugin's quoting does not
// change. Pointers below an empty name are excluded, since tree has none.
func plainPointer(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	for i := 1; i < len(path); i++ {
		switch c := path[i]; {
		case c < 0x20 || c > 0x7e || c == '"' || c == '\\':
			return false
		case c == '/' && path[i-1] == '/':
			return false
		case c == '~' && (i+1 == len(path) || path[i+1] != '0' && path[i+1] != '1'):
			return false
		}
	}
	return true
}
