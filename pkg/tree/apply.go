package tree

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
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
	e := editor{ops: ops}
	for n, op := range ops {
		e.next = n + 1
		var err error
		if doc, err = e.apply(doc, op); err != nil {
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
	ops  []Op
	next int // in ops, after the one under way
	own  map[unsafe.Pointer]any

	// at is the map that the last operation wrote to, one of its own, and path is
	// the way to it. The next operation is often on the same one.
	at   map[string]any
	path string
}

func (e *editor) apply(doc any, op Op) (any, error) {
	if op.Path == "" {
		e.at = nil
		return e.set(op)
	}
	if op.Path[0] != '/' || strings.IndexByte(op.Path, '~') >= 0 {
		if _, err := ParsePointer(op.Path); err != nil {
			return nil, err
		}
	}
	i := strings.LastIndexByte(op.Path, '/')
	if e.at != nil && op.Path[:i] == e.path {
		_, err := e.member(e.at, op.Path[i+1:], op)
		return doc, err
	}
	e.at = nil
	return e.edit(doc, op.Path[1:], op)
}

func (e *editor) keep(address unsafe.Pointer, container any) {
	if e.own == nil {
		e.own = map[unsafe.Pointer]any{}
	}
	e.own[address] = container
}

// mapping returns a map that may be modified, with room for so many members more
// if it is a new one.
func (e *editor) mapping(m map[string]any, more int) map[string]any {
	if _, ok := e.own[reflect.ValueOf(m).UnsafePointer()]; ok {
		return m
	}
	var c map[string]any
	if more < 2 && m != nil {
		c = maps.Clone(m)
	} else {
		c = make(map[string]any, len(m)+more)
		maps.Copy(c, m)
	}
	e.keep(reflect.ValueOf(c).UnsafePointer(), c)
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
	e.keep(unsafe.Pointer(unsafe.SliceData(c)), c)
	return c
}

// edit returns node with op done at the place that way leads to from here.
func (e *editor) edit(node any, way string, op Op) (any, error) {
	token, rest, more := strings.Cut(way, "/")
	switch node := node.(type) {
	case map[string]any:
		if !more {
			return e.member(node, token, op)
		}
		token = unescaped(token)
		child, ok := node[token]
		if !ok {
			return nil, fmt.Errorf("no field %q", token)
		}
		child, err := e.edit(child, rest, op)
		if err != nil {
			return nil, err
		}
		node = e.mapping(node, 0)
		node[token] = child
		return node, nil
	case []any:
		return e.element(node, unescaped(token), rest, !more, op)
	}
	return nil, fmt.Errorf("nothing can be below %s", kind(node))
}

// member does op at a field of a map, whose name is still escaped.
func (e *editor) member(node map[string]any, token string, op Op) (any, error) {
	token = unescaped(token)
	if _, ok := node[token]; !ok && op.Op != "add" {
		return nil, fmt.Errorf("no field %q", token)
	}
	var value any
	if op.Op != "remove" {
		var err error
		if value, err = e.set(op); err != nil {
			return nil, err
		}
	}
	if e.at == nil {
		e.path = op.Path[:strings.LastIndexByte(op.Path, '/')]
		node = e.mapping(node, e.additions())
		e.at = node
	}
	if op.Op == "remove" {
		delete(node, token)
	} else {
		node[token] = value
	}
	return node, nil
}

// additions counts the members that are added to the map at path, by the operation
// under way and those that follow it.
func (e *editor) additions() int {
	n := 0
	for _, op := range e.ops[e.next-1:] {
		token, ok := strings.CutPrefix(op.Path, e.path)
		if !ok || strings.LastIndexByte(token, '/') != 0 {
			break
		}
		if op.Op == "add" {
			n++
		}
	}
	return n
}

// element does op at an element of a list, or below.
func (e *editor) element(node []any, token, rest string, last bool, op Op) (any, error) {
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
	var child any
	switch {
	case last && op.Op == "add":
		return slices.Insert(e.list(node), i, op.Value), nil
	case last && op.Op == "remove":
		return slices.Delete(e.list(node), i, i+1), nil
	case last:
		child, err = e.set(op)
	default:
		child, err = e.edit(node[i], rest, op)
	}
	if err != nil {
		return nil, err
	}
	node = e.list(node)
	node[i] = child
	return node, nil
}

// set is what stands at the place that op is about, afterwards.
func (e *editor) set(op Op) (any, error) {
	if op.Op == "remove" {
		return nil, errors.New("cannot remove the whole document")
	}
	return op.Value, known(op)
}

// unescaped is a token of a path that ParsePointer has accepted, if it has one
// that needs it.
func unescaped(token string) string {
	if strings.IndexByte(token, '~') < 0 {
		return token
	}
	token, _ = unescape(token)
	return token
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
