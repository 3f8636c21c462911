package manifest

import (
	"strconv"

	"github.com/mapd-project/mapd/pkg/tree"
)

// ReplayProven returns orig with the change from before to after, like Replay. It
// returns after itself if the change does not fit, or if decode, which returns an
// object as a server decodes it, makes something else of the result than of after.
func ReplayProven(orig, before, after map[string]any, decode func(map[string]any) (map[string]any, error)) map[string]any {
	out, ok := Replay(orig, before, after)
	if !ok {
		return after
	}
	printed, err := decode(out)
	if err != nil {
		return after
	}
	meant, err := decode(after)
	if err != nil || !tree.Equal(printed, meant) {
		return after
	}
	return out
}

// Replay makes on orig the change that leads from before to after, where before
// is orig as a server decodes it: quantities in their canonical form, empty
// fields dropped or added. What did not change stays as orig has it. The second
// result is false if orig lacks the shape of before, so that the change does not
// apply.
func Replay(orig, before, after map[string]any) (map[string]any, bool) {
	var e tree.Edit
	e.Reset(orig)
	for _, op := range tree.Diff(before, after) {
		tokens, err := tree.ParsePointer(op.Path)
		if err != nil || len(tokens) == 0 || !replay(&e, tokens, op) {
			return nil, false
		}
	}
	m, ok := e.Root().(map[string]any)
	return m, ok
}

// replay applies one operation. A server adds empty objects and drops nulls when it
// decodes, so a parent may be missing here, and so may what is to be removed.
func replay(e *tree.Edit, tokens []string, op tree.Op) bool {
	e.Top()
	for n, name := range tokens {
		last := n == len(tokens)-1
		token := tree.Token{Key: name}
		var child any
		switch at := e.At().(type) {
		case nil:
			if op.Op == "remove" {
				return true
			}
			if _, err := strconv.Atoi(name); err == nil && !last {
				return false // would be an element of a list that is not there
			}
		case map[string]any:
			child = at[name]
		case []any:
			i, err := strconv.Atoi(name)
			if name == "-" {
				i, err = len(at), nil
			}
			if err != nil || i < 0 || i > len(at) || i == len(at) && (!last || op.Op != "add") {
				return false
			}
			token = tree.Token{Index: i}
			if last && op.Op == "add" {
				e.Insert(i, op.Value)
				return true
			}
			child = at[i]
		default:
			return false
		}
		switch {
		case !last:
			e.Down(token, child)
		case op.Op == "remove":
			e.Delete(token)
		default:
			e.Set(token, op.Value)
		}
	}
	return true
}
