package cel

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// value reads an expression whose value is JSON data: nil, bool, string, int64,
// float64, lists and maps of them, and whatever else an object may hold by
// mistake, which is not looked into.
func (r *reader) value(e ast.Expr) valueOf {
	switch e.Kind() {
	case ast.LiteralKind:
		return literalValue(e)
	case ast.IdentKind:
		return r.name(e.AsIdent())
	case ast.SelectKind:
		if e.AsSelect().IsTestOnly() {
			return fromBool(r.boolean(e))
		}
		return r.field(e)
	case ast.ListKind:
		return r.list(e.AsList())
	case ast.MapKind:
		return r.mapping(e.AsMap())
	case ast.ComprehensionKind:
		if v := r.gathered(e); v != nil {
			return v
		}
		return fromBool(r.boolean(e))
	case ast.CallKind:
		return r.call(e)
	}
	return nil
}

func literalValue(e ast.Expr) valueOf {
	var v any
	switch l := e.AsLiteral().(type) {
	case types.String:
		v = string(l)
	case types.Int:
		v = int64(l)
	case types.Double:
		v = float64(l)
	case types.Bool:
		v = bool(l)
	case types.Null:
	default:
		return nil
	}
	return func(*frame) (any, bool) { return v, true }
}

func (r *reader) name(name string) valueOf {
	if slot := r.variable(name); slot >= 0 {
		return func(f *frame) (any, bool) { return f.loops[slot], true }
	}
	switch strings.TrimPrefix(name, ".") {
	case objectName:
		return func(f *frame) (any, bool) { return orNull(f.in.Object), true }
	case oldObjectName:
		return func(f *frame) (any, bool) { return orNull(f.in.OldObject), true }
	case paramsName:
		return func(f *frame) (any, bool) { return orNull(f.in.Params), true }
	case requestName:
		return func(f *frame) (any, bool) { return f.act.ResolveName(requestName) }
	}
	return nil
}

// field reads a.b.c at once.
func (r *reader) field(e ast.Expr) valueOf {
	var names []string
	for e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly() {
		names = append(names, e.AsSelect().FieldName())
		e = e.AsSelect().Operand()
	}
	slices.Reverse(names)
	of := r.value(e)
	if of == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		v, ok := of(f)
		for _, name := range names {
			m, _ := v.(map[string]any)
			if v, ok = m[name]; !ok {
				return nil, false
			}
		}
		return v, ok
	}
}

func (r *reader) list(l ast.ListExpr) valueOf {
	if len(l.OptionalIndices()) > 0 {
		return nil
	}
	elements := make([]valueOf, 0, l.Size())
	for _, e := range l.Elements() {
		v := r.value(e)
		if v == nil {
			return nil
		}
		elements = append(elements, v)
	}
	return func(f *frame) (any, bool) {
		out := make([]any, len(elements))
		for i, of := range elements {
			var ok bool
			if out[i], ok = of(f); !ok {
				return nil, false
			}
		}
		return out, true
	}
}

func (r *reader) mapping(m ast.MapExpr) valueOf {
	keys, values := make([]string, 0, m.Size()), make([]valueOf, 0, m.Size())
	for _, e := range m.Entries() {
		entry := e.AsMapEntry()
		key, v := literalText(entry.Key()), r.value(entry.Value())
		if entry.IsOptional() || key == "" || slices.Contains(keys, key) || v == nil {
			return nil
		}
		keys, values = append(keys, key), append(values, v)
	}
	return func(f *frame) (any, bool) {
		out := make(map[string]any, len(keys))
		for i, of := range values {
			v, ok := of(f)
			if !ok {
				return nil, false
			}
			out[keys[i]] = v
		}
		return out, true
	}
}

// gathered reads map, filter and transformList.
func (r *reader) gathered(e ast.Expr) valueOf {
	var filter boolOf
	var yield valueOf
	l := r.loop(e, func(l *loop) bool {
		if l.filter != nil {
			if filter = r.boolean(l.filter); filter == nil {
				return false
			}
		}
		yield = r.value(l.yield)
		return yield != nil
	})
	if l == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		out := []any{}
		ok := l.each(f, func(f *frame) (more, ok bool) {
			if filter != nil {
				if v, ok := filter(f); !ok || !v {
					return true, ok
				}
			}
			v, ok := yield(f)
			out = append(out, v)
			return true, ok
		})
		return out, ok
	}
}

func (r *reader) call(e ast.Expr) valueOf {
	args := operandsOf(e)
	switch {
	case is(e, "dyn", 1):
		return r.value(args[0])
	case is(e, "_?_:_", 3):
		condition, then, otherwise := r.boolean(args[0]), r.value(args[1]), r.value(args[2])
		if condition == nil || then == nil || otherwise == nil {
			return nil
		}
		return func(f *frame) (any, bool) {
			switch v, ok := condition(f); {
			case !ok:
				return nil, false
			case v:
				return then(f)
			default:
				return otherwise(f)
			}
		}
	case is(e, "orValue", 2):
		first, second := r.optional(args[0]), r.value(args[1])
		if first == nil || second == nil {
			return nil
		}
		return func(f *frame) (any, bool) {
			if v, has, ok := first(f); !ok || has {
				return v, ok
			}
			return second(f)
		}
	case is(e, "_[_]", 2):
		of, key := r.value(args[0]), r.value(args[1])
		if of == nil || key == nil {
			return nil
		}
		return func(f *frame) (any, bool) {
			v, ok := of(f)
			if !ok {
				return nil, false
			}
			k, ok := key(f)
			if !ok {
				return nil, false
			}
			v, has, ok := member(v, k)
			return v, ok && has
		}
	case is(e, "size", 1):
		return sizeOf(r.value(args[0]))
	case is(e, "_-_", 2):
		return difference(r.value(args[0]), r.value(args[1]))
	case is(e, "substring", 3):
		return substring(r.value(args[0]), r.value(args[1]), r.value(args[2]))
	case is(e, "reverse", 1) && e.AsCall().IsMemberFunction():
		return reversed(r.value(args[0]))
	case is(e, "string", 1), is(e, "_+_", 2) && r.checked.GetType(e.ID()) == types.StringType:
		t := r.text(e)
		if t == nil {
			return nil
		}
		return func(f *frame) (any, bool) {
			s, ok := t.join(f)
			return s, ok
		}
	}
	return fromBool(r.boolean(e))
}

// member finds what a map has under a name.
func member(of, key any) (value any, has, ok bool) {
	m, isMap := of.(map[string]any)
	name, isName := key.(string)
	if !isMap || !isName {
		return nil, false, false
	}
	value, has = m[name]
	return value, has, true
}

func reversed(of valueOf) valueOf {
	if of == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		v, ok := of(f)
		list, isList := v.([]any)
		if !ok || !isList {
			return nil, false
		}
		list = slices.Clone(list)
		slices.Reverse(list)
		return list, true
	}
}

// optional reads a.?b.?c and a[?b].
func (r *reader) optional(e ast.Expr) optionalOf {
	if !is(e, "_?._", 2) && !is(e, "_[?_]", 2) {
		return nil
	}
	args := operandsOf(e)
	key := r.value(args[1])
	of := r.optional(args[0])
	if of == nil {
		of = certain(r.value(args[0]))
	}
	if of == nil || key == nil {
		return nil
	}
	return func(f *frame) (any, bool, bool) {
		v, has, ok := of(f)
		if !ok || !has {
			return nil, false, ok
		}
		k, ok := key(f)
		if !ok {
			return nil, false, false
		}
		return member(v, k)
	}
}

// certain takes a value for an optional that has it.
func certain(of valueOf) optionalOf {
	if of == nil {
		return nil
	}
	return func(f *frame) (any, bool, bool) {
		v, ok := of(f)
		return v, true, ok
	}
}

// text is a concatenation.
type text []textPart

// textPart is a literal, or a value that is a string, or the string of a value
// that may be a string, or an integer, or both.
type textPart struct {
	literal           string
	of                valueOf
	strings, integers bool
}

// text reads an expression whose value is a string.
func (r *reader) text(e ast.Expr) text {
	if s := literalText(e); s != "" {
		return text{{literal: s}}
	}
	if is(e, "_+_", 2) {
		args := operandsOf(e)
		a, b := r.text(args[0]), r.text(args[1])
		if a == nil || b == nil {
			return nil
		}
		return append(a, b...)
	}
	p := textPart{strings: true}
	if is(e, "string", 1) {
		e = operandsOf(e)[0]
		// If the checker takes e for a type, as a[?"b"] that has an orValue, cel-go
		// knows the function for that type only.
		kind := r.checked.GetType(e.ID()).Kind()
		p.strings = kind == types.DynKind || kind == types.StringKind
		p.integers = kind == types.DynKind || kind == types.IntKind
	}
	if p.of = r.value(e); p.of == nil {
		return nil
	}
	return text{p}
}

// literal returns a text that reads nothing.
func (t text) literal() (string, bool) { return t[0].literal, len(t) == 1 && t[0].of == nil }

// join writes behind what an outer text has written so far, which may be waiting
// for this one.
func (t text) join(f *frame) (string, bool) {
	start := len(f.text)
	defer func() { f.text = f.text[:start] }()
	for i := range t {
		p := &t[i]
		if p.of == nil {
			f.text = append(f.text, p.literal...)
			continue
		}
		v, ok := p.of(f)
		switch v := v.(type) {
		case string:
			f.text = append(f.text, v...)
			ok = ok && p.strings
		case int64:
			f.text = strconv.AppendInt(f.text, v, 10)
			ok = ok && p.integers
		default:
			ok = false
		}
		if !ok {
			return "", false
		}
	}
	return string(f.text[start:]), true
}

// sizeOf is that of a list, a map or a string in which bytes are code points.
func sizeOf(of valueOf) valueOf {
	if of == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		v, ok := of(f)
		switch v := v.(type) {
		case string:
			return int64(len(v)), ok && isASCII(v)
		case []any:
			return int64(len(v)), ok
		case map[string]any:
			return int64(len(v)), ok
		}
		return nil, false
	}
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// difference is that of small integers.
func difference(a, b valueOf) valueOf {
	if a == nil || b == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		x, ok := small(a(f))
		y, okToo := small(b(f))
		return x - y, ok && okToo
	}
}

// small returns an integer with which one can reckon freely.
func small(v any, ok bool) (int64, bool) {
	n, isInt := v.(int64)
	return n, ok && isInt && n == int64(int32(n))
}

// substring is that of a string in which bytes are code points.
func substring(of, from, to valueOf) valueOf {
	if of == nil || from == nil || to == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		v, ok := of(f)
		s, isString := v.(string)
		if !ok || !isString || !isASCII(s) {
			return nil, false
		}
		i, ok := small(from(f))
		j, okToo := small(to(f))
		if !ok || !okToo || i < 0 || j < i || j > int64(len(s)) {
			return nil, false
		}
		return s[i:j], true
	}
}
