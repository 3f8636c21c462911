package tree

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"unsafe"
)

// Apply applies a patch of add, replace and remove operations to doc, as RFC
// 6902 has it, and returns the new version. doc and the operations' values are
// not modified; what no operation touches is shared with doc. It is strict
// where libraries differ: what an operation removes or replaces must exist, an
// index has no sign and no leading zeros, "-" is good for add only, and there
// is nothing below null or a scalar. An error names the operation's number,
// from 0, and its path; there is no new version then.
func Apply(doc any, ops []Op) (any, error) {
	e := editor{own: map[unsafe.Pointer]any{}}
	for n, op := range ops {
		tokens, err := ParsePointer(op.Path)
		if err == nil {
			doc, err = e.edit(doc, tokens, op)
		}
		if err != nil {
			return nil, fmt.Errorf("operation %d, %s %q: %w", n, op.Op, op.Path, err)
		}
	}
	return doc, nil
}

// editor remembers which containers it made itself and may therefore modify,
// so that a thousand operations on one list do not copy it a thousand times.
// The containers are kept as values too: none may be collected and its address
// given to somebody else's container meanwhile.
type editor struct {
	own map[unsafe.Pointer]any
}

func (e *editor) mapping(m map[string]any) map[string]any {
	p := reflect.ValueOf(m).UnsafePointer()
	if _, ok := e.own[p]; ok {
		return m
	}
	c := make(map[string]any, len(m)+1)
	for k, v := range m {
		c[k] = v
	}
	e.own[reflect.ValueOf(c).UnsafePointer()] = c
	return c
}

// list returns a list that has room for one more element.
func (e *editor) list(l []any) []any {
	if cap(l) > len(l) {
		if _, ok := e.own[unsafe.Pointer(unsafe.SliceData(l))]; ok {
			return l
		}
	}
	c := append(make([]any, 0, len(l)+len(l)/4+1), l...)
	e.own[unsafe.Pointer(unsafe.SliceData(c))] = c
	return c
}

// edit returns node with op done at the place tokens lead to from here.
func (e *editor) edit(node any, tokens []string, op Op) (any, error) {
	if len(tokens) == 0 {
		if op.Op == "remove" {
			return nil, errors.New("cannot remove the whole document")
		}
		return op.Value, known(op)
	}
	token, last := tokens[0], len(tokens) == 1
	switch node := node.(type) {
	case map[string]any:
		child, ok := node[token]
		if !ok && !(last && op.Op == "add") {
			return nil, fmt.Errorf("no field %q", token)
		}
		if last && op.Op == "remove" {
			node = e.mapping(node)
			delete(node, token)
			return node, nil
		}
		child, err := e.edit(child, tokens[1:], op)
		if err != nil {
			return nil, err
		}
		node = e.mapping(node)
		node[token] = child
		return node, nil
	case []any:
		limit := len(node)
		if last && op.Op == "add" {
			limit++
		}
		i, err := index(token, limit)
		if token == "-" && last && op.Op == "add" {
			i, err = len(node), nil
		}
		if err != nil {
			return nil, err
		}
		switch {
		case last && op.Op == "add":
			return slices.Insert(e.list(node), i, op.Value), nil
		case last && op.Op == "remove":
			return slices.Delete(e.list(node), i, i+1), nil
		}
		child, err := e.edit(node[i], tokens[1:], op)
		if err != nil {
			return nil, err
		}
		node = e.list(node)
		node[i] = child
		return node, nil
	}
	return nil, fmt.Errorf("nothing can be below %s", kind(node))
}

func known(op Op) error {
	switch op.Op {
	case "add", "replace", "remove":
		return nil
	}
	return errors.New("unknown operation")
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
