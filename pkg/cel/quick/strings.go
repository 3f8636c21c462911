package quick

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
)

// text writes a string behind what the frame's text has so far, which may be waiting
// for this one, and returns how many code points it is if costs are counted.
type text struct {
	literal string // if not empty, all of it
	write   func(f *frame) (size int64, ok bool)
}

// text reads an expression whose value is a string.
func (r *reader) text(e ast.Expr) *text {
	if e.Kind() == ast.LiteralKind {
		s, ok := e.AsLiteral().(types.String)
		if !ok {
			return nil
		}
		size := int64(utf8.RuneCountInString(string(s)))
		return &text{literal: string(s), write: func(f *frame) (int64, bool) {
			f.text = append(f.text, s...)
			return size, true
		}}
	}
	if fn, c := r.call(e, data); fn != nil && fn.text != nil && !r.constant(e) {
		return fn.text(r, c)
	}
	return textOf(r.value(e), 0, func(k types.Kind) bool { return k == types.StringKind })
}

// textOf writes a value that may be of some kinds.
func textOf(of part, cost int64, may func(types.Kind) bool) *text {
	if of == nil {
		return nil
	}
	return &text{write: func(f *frame) (int64, bool) {
		v, ok := of(f)
		f.Cost += cost
		start := len(f.text)
		switch v := v.(type) {
		case string:
			// The rest of f.text is part of a text that is counted when it is complete.
			if len(f.text)+len(v) > maxMade || !f.read(len(v)) {
				return 0, false
			}
			f.text = append(f.text, v...)
			ok = ok && may(types.StringKind)
		case int64:
			f.text = strconv.AppendInt(f.text, v, 10)
			ok = ok && may(types.IntKind)
		case bool:
			f.text = strconv.AppendBool(f.text, v)
			ok = ok && may(types.BoolKind)
		default:
			return 0, false
		}
		return f.written(start), ok
	}}
}

// written returns how many code points of text there are from start.
func (f *frame) written(start int) int64 {
	if !f.metered {
		return 0
	}
	return int64(utf8.RuneCount(f.text[start:]))
}

// mayBe returns which kinds the operand of string(…) may have. If the checker takes it
// for one, as a[?"b"] that has an orValue, cel-go knows the function for that kind
// only.
func (c *call) mayBe(r *reader) func(types.Kind) bool {
	kind := r.checked.GetType(c.args[0].ID()).Kind()
	return func(k types.Kind) bool { return kind == k || kind == types.DynKind }
}

// readString reads string(…) as data: a string stays the one that it is.
func readString(r *reader, c call) part {
	of, may := r.value(c.args[0]), c.mayBe(r)
	if of == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		v, ok := of(f)
		f.Cost++
		switch n := v.(type) {
		case string:
			return v, ok && may(types.StringKind)
		case int64:
			return strconv.FormatInt(n, 10), ok && may(types.IntKind)
		case bool:
			return strconv.FormatBool(n), ok && may(types.BoolKind)
		}
		return nil, false
	}
}

// sumOfTexts reads one text behind another. If they are known to be texts before they
// are evaluated, the cost depends on their size.
func sumOfTexts(r *reader, c call) *text {
	a, b, known := r.text(c.args[0]), r.text(c.args[1]), r.overload(c.e) == overloads.AddString
	if a == nil || b == nil {
		return nil
	}
	return &text{write: func(f *frame) (int64, bool) {
		start := len(f.text)
		x, ok := a.write(f)
		if !ok {
			return 0, false
		}
		y, ok := b.write(f)
		if f.metered && known {
			// Texts can grow with each sum.
			f.Cost += traversal(x + y)
			ok = ok && f.Cost <= f.limit
		} else {
			f.Cost++
		}
		// Not x + y: what is no UTF-8 may become some at the seam.
		return f.written(start), ok
	}}
}

var keyEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// escapedText reads a text as part of a JSON pointer.
func escapedText(r *reader, c call) *text {
	of := r.text(c.args[0])
	if of == nil {
		return nil
	}
	return &text{write: func(f *frame) (int64, bool) {
		start := len(f.text)
		size, ok := of.write(f)
		f.Cost += traversal(size)
		if plain := f.text[start:]; bytes.ContainsAny(plain, "~/") {
			f.text = append(f.text[:start], keyEscapes.Replace(string(plain))...)
			size = f.written(start)
		}
		return size, ok
	}}
}

// join returns the text.
func (t *text) join(f *frame) (string, bool) {
	if t.literal != "" {
		return t.literal, true
	}
	start := len(f.text)
	defer func() { f.text = f.text[:start] }()
	if _, ok := t.write(f); !ok || !f.make(len(f.text)-start) {
		return "", false
	}
	return string(f.text[start:]), true
}

// value returns the part for a text.
func (t *text) value() part {
	if t == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		s, ok := t.join(f)
		return s, ok
	}
}
