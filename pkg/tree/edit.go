package tree

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"unsafe"
)

// Edit is a tree that is changed step by step. It copies a container before the
// first write to it and writes to its own copies in place, so that a hundred
// members of one map copy that map once. The tree that it began with, and every
// value that is written, stay as they are.
//
// An Edit has a cursor, which stands at a container: Top and Down move it, and Set,
// Delete and Insert write to the container at the cursor. Every write since Begin is
// in a journal, and Undo takes all of them back.
//
// The zero Edit must be Reset before use. It must not be used by two goroutines at
// once.
type Edit struct {
	// way leads from the root to the cursor; way[0] is the root.
	way []step
	// own are the containers that the Edit may modify, by address. The values keep them alive,
	// so that the address cannot become that of another container. They are reached only
	// through other containers of the Edit, and each from one place.
	own map[unsafe.Pointer]any

	journal    []change
	used       int // entries of journal in use since Reset
	journaling bool
	grow       int
}

// Token names a child of a container: the key of a map's member, or the index of a
// list's element.
type Token struct {
	Key   string
	Index int
}

// step is a container on the way to the cursor.
type step struct {
	at    any
	token Token // in the container above
	own   bool  // at is known to be in own
}

// change is one write, with what Undo needs to revert it.
type change struct {
	in    any // the container
	token Token
	old   any
	kind  changeKind
	had   bool // the map had the member before
}

type changeKind uint8

const (
	changedRoot changeKind = iota
	changedMember
	changedElement
	insertedElement // in is the list afterwards
	deletedElement  // in is the list before
)

// maxReused bounds the entries of own and of the journal whose memory is reused: clearing more
// would cost edits that need few entries.
const maxReused = 1 << 10

// Reset begins anew with root, which is never modified.
func (e *Edit) Reset(root any) {
	e.Keep()
	if e.used > maxReused {
		e.journal = nil
	}
	clear(e.journal[:min(e.used, cap(e.journal))])
	e.used = 0
	clear(e.way)
	e.way = append(e.way[:0], step{at: root})
	e.journaling, e.grow = false, 0
}

// Root returns the tree as it is now. It is modified by later writes unless Keep is
// called first.
func (e *Edit) Root() any { return e.way[0].at }

// Keep makes the present tree immutable: no later write modifies it, and Undo reverts only
// later writes.
func (e *Edit) Keep() {
	e.forget()
	if len(e.own) > maxReused {
		e.own = nil
	} else {
		clear(e.own)
	}
	e.disowned()
}

// disowned clears the own flags of the steps of the way.
func (e *Edit) disowned() {
	for i := range e.way {
		e.way[i].own = false
	}
}

// Release prepares for writing v, parts of which may be in the tree already, into the tree: no
// later write modifies v. It must be called before Begin, since Undo does modify containers
// that were written to since Begin.
func (e *Edit) Release(v any) {
	if len(e.own) > 0 {
		n := len(e.own)
		if e.release(v); len(e.own) < n {
			e.disowned()
		}
	}
}

func (e *Edit) release(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(e.own, address(v))
		for _, child := range v {
			e.release(child)
		}
	case []any:
		delete(e.own, address(v))
		for _, child := range v {
			e.release(child)
		}
	}
}

// Owns reports whether v is a container that writes modify in place.
func (e *Edit) Owns(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		_, own := e.own[address(v)]
		return own
	}
	return false
}

func address(container any) unsafe.Pointer {
	switch c := container.(type) {
	case map[string]any:
		return reflect.ValueOf(c).UnsafePointer()
	case []any:
		return unsafe.Pointer(unsafe.SliceData(c))
	}
	return nil
}

// Begin empties the journal: a later Undo returns to the present tree.
func (e *Edit) Begin() {
	e.forget()
	e.journaling = true
}

// forget empties the journal. The values in it are released by Reset.
func (e *Edit) forget() {
	e.used = max(e.used, len(e.journal))
	e.journal = e.journal[:0]
}

// Undo takes back every write since Begin, also after a panic in the middle of one.
// The cursor is at the root then.
func (e *Edit) Undo() {
	e.Top()
	for i := len(e.journal) - 1; i >= 0; i-- {
		c := &e.journal[i]
		l, _ := c.in.([]any)
		switch at := c.token.Index; c.kind {
		case changedRoot:
			e.way[0] = step{at: c.old}
		case changedMember:
			if m := c.in.(map[string]any); c.had {
				m[c.token.Key] = c.old
			} else {
				delete(m, c.token.Key)
			}
		case changedElement:
			l[at] = c.old
		case insertedElement:
			copy(l[at:], l[at+1:])
			l[len(l)-1] = nil
		case deletedElement:
			copy(l[at+1:], l[at:])
			l[at] = c.old
		}
	}
	e.forget()
}

// Top moves the cursor to the root.
func (e *Edit) Top() {
	clear(e.way[1:])
	e.way = e.way[:1]
}

// Down moves the cursor to a child of the container at the cursor; child is the
// value that it has there.
func (e *Edit) Down(t Token, child any) {
	e.way = append(e.way, step{at: child, token: t})
}

// Up moves the cursor to the container above.
func (e *Edit) Up() {
	last := len(e.way) - 1
	e.way[last] = step{}
	e.way = e.way[:last]
}

// At returns the value at the cursor.
func (e *Edit) At() any { return e.way[len(e.way)-1].at }

// AppendPath appends the JSON pointer to a child of the container at the cursor.
func (e *Edit) AppendPath(b []byte, t Token) []byte {
	for i := 1; i < len(e.way); i++ {
		b = appendChild(b, e.way[i-1].at, e.way[i].token)
	}
	return appendChild(b, e.At(), t)
}

func appendChild(b []byte, container any, t Token) []byte {
	if _, list := container.([]any); list {
		return strconv.AppendInt(append(b, '/'), int64(t.Index), 10)
	}
	return appendToken(b, t.Key)
}

// Grow announces that n members will be added to the map at the cursor, so that a copy has room
// for them.
func (e *Edit) Grow(n int) { e.grow = n }

// SetRoot replaces the whole tree, and moves the cursor to its root.
func (e *Edit) SetRoot(v any) {
	e.Top()
	e.record(changedRoot, nil, Token{}, e.way[0].at, true)
	e.way[0] = step{at: v}
}

// Set writes a member of the map or replaces an element of the list at the cursor. Null
// at the cursor becomes a map.
func (e *Edit) Set(t Token, v any) {
	e.claim()
	e.store(e.At(), t, v)
}

// SetMember is Set for a member of a map whose old value, or absence, the caller knows.
func (e *Edit) SetMember(t Token, old any, had bool, v any) {
	e.claim()
	at := e.At()
	e.record(changedMember, at, t, old, had)
	at.(map[string]any)[t.Key] = v
}

// Delete removes a member of the map or an element of the list at the cursor.
func (e *Edit) Delete(t Token) {
	e.claim()
	at := e.At()
	switch c := at.(type) {
	case map[string]any:
		if old, had := c[t.Key]; had {
			e.record(changedMember, at, t, old, true)
			delete(c, t.Key)
		}
	case []any:
		old := c[t.Index]
		shorter := slices.Delete(c, t.Index, t.Index+1)
		e.record(deletedElement, at, t, old, true)
		e.replace(len(e.way)-1, shorter)
	}
}

// Insert inserts an element at index into the list at the cursor; an index that is the length
// appends it.
func (e *Edit) Insert(index int, v any) {
	e.claim()
	var l any = slices.Insert(e.At().([]any), index, v)
	e.record(insertedElement, l, Token{Index: index}, nil, false)
	e.keep(l)
	e.replace(len(e.way)-1, l)
}

// claim copies the container at the cursor, and those on the way to it, unless the Edit owns
// them. If it owns the last one, it owns all.
func (e *Edit) claim() {
	last := len(e.way) - 1
	if e.way[last].own {
		return
	}
	for i := range e.way {
		s := &e.way[i]
		if s.own {
			continue
		}
		if !e.Owns(s.at) {
			more := 0
			if i == last {
				more, e.grow = e.grow, 0
			}
			e.replace(i, e.copied(s.at, more))
		}
		s.own = true
	}
}

// replace replaces a container on the way by a copy, or by the same list with another length.
func (e *Edit) replace(i int, container any) {
	if i == 0 {
		e.record(changedRoot, nil, Token{}, e.way[0].at, true)
	} else {
		e.store(e.way[i-1].at, e.way[i].token, container)
	}
	e.way[i].at = container
}

// copied returns a copy of a container that the Edit owns, with capacity for more members or
// elements.
func (e *Edit) copied(container any, more int) any {
	switch c := container.(type) {
	case map[string]any:
		var m map[string]any
		if more < 2 && c != nil {
			m = maps.Clone(c)
		} else {
			m = make(map[string]any, len(c)+more)
			maps.Copy(m, c)
		}
		container = m
	case []any:
		container = append(make([]any, 0, len(c)+1), c...)
	case nil:
		container = map[string]any{}
	default:
		panic("tree: a write below " + kind(container))
	}
	e.keep(container)
	return container
}

func (e *Edit) keep(container any) {
	if e.own == nil {
		e.own = make(map[unsafe.Pointer]any, 8)
	}
	e.own[address(container)] = container
}

// store writes to a container that the Edit owns.
func (e *Edit) store(container any, t Token, v any) {
	switch c := container.(type) {
	case map[string]any:
		if e.journaling {
			old, had := c[t.Key]
			e.record(changedMember, container, t, old, had)
		}
		c[t.Key] = v
	case []any:
		e.record(changedElement, container, t, c[t.Index], true)
		c[t.Index] = v
	}
}

func (e *Edit) record(kind changeKind, in any, t Token, old any, had bool) {
	if e.journaling {
		e.journal = append(e.journal, change{in: in, token: t, old: old, kind: kind, had: had})
	}
}
