package tree

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Apply applies a patch of add, replace and remove operations to doc, as RFC
// 6902 has it, and returns the new version. doc and the operations' values are
// not modified; what no operation touches is shared with doc. It is strict
// where libraries differ: what an operation removes or replaces must exist, an
// index has no sign and no leading zeros, "-" is good for add only, and there
// is nothing below null or a scalar. An error names the operation's number,
// from 0, and its path; there is no new version then.
func Apply(doc any, ops []Op) (any, error) {
	a := applier{edit: Edit{way: make([]step, 1, 8)}}
	a.edit.way[0].at = doc
	for n := range ops {
		if err := a.apply(ops[n:]); err != nil {
			return nil, fmt.Errorf("operation %d, %s %q: %w", n, ops[n].Op, ops[n].Path, err)
		}
	}
	return a.edit.Root(), nil
}

// applier is a document to which a patch is being applied. path leads to the edit's cursor.
type applier struct {
	edit Edit
	path string
}

// apply applies ops[0]. The operations after it are used to size maps.
func (a *applier) apply(ops []Op) error {
	op := &ops[0]
	if op.Op != "add" && op.Op != "replace" && op.Op != "remove" {
		return errors.New("unknown operation")
	}
	if op.Path == "" {
		if op.Op == "remove" {
			return errors.New("cannot remove the whole document")
		}
		a.path = ""
		a.edit.SetRoot(op.Value)
		return nil
	}
	if op.Path[0] != '/' || strings.IndexByte(op.Path, '~') >= 0 {
		if _, err := ParsePointer(op.Path); err != nil {
			return err
		}
	}
	last := strings.LastIndexByte(op.Path, '/')
	if path := op.Path[:last]; path != a.path || path == "" {
		if err := a.descend(path); err != nil {
			return err
		}
		a.edit.Grow(additions(ops, path))
	}
	name := unescaped(op.Path[last+1:])
	token, err := tokenOf(a.edit.At(), name, op.Op == "add")
	if err != nil {
		return err
	}
	_, list := a.edit.At().([]any)
	switch {
	case op.Op == "remove":
		a.edit.Delete(token)
	case op.Op == "add" && list:
		a.edit.Insert(token.Index, op.Value)
	default:
		a.edit.Set(token, op.Value)
	}
	return nil
}

// descend moves the cursor from the root to the container that path leads to.
func (a *applier) descend(path string) error {
	a.edit.Top()
	for way := path; way != ""; {
		name, rest := way[1:], ""
		if i := strings.IndexByte(name, '/'); i >= 0 {
			name, rest = name[:i], name[i:]
		}
		at := a.edit.At()
		token, err := tokenOf(at, unescaped(name), false)
		if err != nil {
			return err
		}
		switch at := at.(type) {
		case map[string]any:
			a.edit.Down(token, at[token.Key])
		case []any:
			a.edit.Down(token, at[token.Index])
		}
		way = rest
	}
	a.path = path
	return nil
}

// tokenOf finds what name means in a container. Only what is added may be absent.
func tokenOf(container any, name string, add bool) (Token, error) {
	switch c := container.(type) {
	case map[string]any:
		if _, ok := c[name]; !ok && !add {
			return Token{}, fmt.Errorf("no field %q", name)
		}
		return Token{Key: name}, nil
	case []any:
		limit := len(c)
		if add {
			if limit++; name == "-" {
				return Token{Index: len(c)}, nil
			}
		}
		i, err := index(name, limit)
		return Token{Index: i}, err
	}
	return Token{}, fmt.Errorf("nothing can be below %s", kind(container))
}

// additions counts the members that ops[0] and the operations directly after it add to the map
// at path.
func additions(ops []Op, path string) int {
	n := 0
	for i := range ops {
		token, ok := strings.CutPrefix(ops[i].Path, path)
		if !ok || strings.LastIndexByte(token, '/') != 0 {
			break
		}
		if ops[i].Op == "add" {
			n++
		}
	}
	return n
}

// unescaped returns a token of a path that ParsePointer has accepted, with "~0" and "~1"
// replaced.
func unescaped(token string) string {
	if strings.IndexByte(token, '~') < 0 {
		return token
	}
	token, _ = unescape(token)
	return token
}

// index reads a list index below limit.
func index(token string, limit int) (int, error) {
	i, err := strconv.Atoi(token)
	if err != nil || strconv.Itoa(i) != token || i < 0 {
		return 0, fmt.Errorf("%q is not a list index", token)
	}
	if i >= limit {
		return 0, fmt.Errorf("index %d is beyond the list", i)
	}
	return i, nil
}
