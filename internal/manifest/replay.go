package manifest

import (
	"maps"
	"slices"
	"strconv"

	"github.com/mapd-project/mapd/pkg/tree"
)

// Replay makes on orig the change that leads from before to after, where before
// is orig as a server decodes it: quantities in their canonical form, empty
// fields dropped or added. What did not change stays as orig has it. The second
// result is false if orig has not the shape of before, so that the change has no
// place in it.
func Replay(orig, before, after map[string]any) (map[string]any, bool) {
	var root any = orig
	for _, op := range tree.Diff(before, after) {
		tokens, err := tree.ParsePointer(op.Path)
		if err != nil || len(tokens) == 0 {
			return nil, false
		}
		next, ok := replayOp(root, tokens, op)
		if !ok {
			return nil, false
		}
		root = next
	}
	m, ok := root.(map[string]any)
	return m, ok
}

// replayOp applies one operation copy-on-write. A server adds empty objects and
// drops nulls when it decodes, so a parent may be missing here, and so may what
// is to be removed.
func replayOp(v any, tokens []string, op tree.Op) (any, bool) {
	last := len(tokens) == 1
	switch v := v.(type) {
	case nil:
		if op.Op == "remove" {
			return nil, true
		}
		if _, err := strconv.Atoi(tokens[0]); err == nil && !last {
			return nil, false // would be an element of a list that is not there
		}
		return replayOp(map[string]any{}, tokens, op)
	case map[string]any:
		child, ok := v[tokens[0]]
		if op.Op == "remove" && !ok {
			return v, true
		}
		c := make(map[string]any, len(v)+1)
		maps.Copy(c, v)
		switch {
		case last && op.Op == "remove":
			delete(c, tokens[0])
		case last:
			c[tokens[0]] = op.Value
		default:
			next, ok := replayOp(child, tokens[1:], op)
			if !ok {
				return nil, false
			}
			c[tokens[0]] = next
		}
		return c, true
	case []any:
		i, err := strconv.Atoi(tokens[0])
		if tokens[0] == "-" {
			i, err = len(v), nil
		}
		if err != nil || i < 0 || i > len(v) || i == len(v) && (!last || op.Op != "add") {
			return nil, false
		}
		c := slices.Clone(v)
		switch {
		case last && op.Op == "remove":
			return slices.Delete(c, i, i+1), true
		case last && op.Op == "add":
			return slices.Insert(c, i, op.Value), true
		case last:
			c[i] = op.Value
		default:
			next, ok := replayOp(v[i], tokens[1:], op)
			if !ok {
				return nil, false
			}
			c[i] = next
		}
		return c, true
	}
	return nil, false
}
