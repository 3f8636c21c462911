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

// text appends a string to the frame's text, which may already have the beginning of a
// concatenation, and returns its number of code points if costs are counted.
type text struct {
	literal string // if not empty, the whole string
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

// textOf returns a text for a value that may have one of several kinds.
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
			// The beginning of f.text belongs to a concatenation that is counted when it is
			// complete.
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

// mayBe returns which kinds the operand of string(…) may have. If the checker gives it one
// kind, as a[?"b"] that has an orValue, cel-go uses the function for that kind only.
func (c *call) mayBe(r *reader) func(types.Kind) bool {
	kind := r.checked.GetType(c.args[0].ID()).Kind()
	return func(k types.Kind) bool { return kind == k || kind == types.DynKind }
}

// readString reads string(…) as data: a string is returned as it is.
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

// sumOfTexts reads a concatenation of strings. If the checker knows that both are strings, the
// cost depends on their size.
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
			// Strings can grow with each concatenation.
			f.Cost += traversal(x + y)
			ok = ok && f.Cost <= f.limit
		} else {
			f.Cost++
		}
		// Not x + y: invalid UTF-8 at the end of one and the beginning of the other may become
		// a valid character.
		return f.written(start), ok
	}}
}

var keyEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// escapedText reads a string that is escaped for a JSON pointer.
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
