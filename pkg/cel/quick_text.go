package cel

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
)

// text writes a string behind what the frame's text has so far, which may be
// waiting for this one, and returns how many code points it is if r.metered.
type text struct {
	literal string // if write is nil
	write   func(f *frame) (size int64, ok bool)
}

// text reads an expression whose value is a string.
func (r *reader) text(e ast.Expr) *text {
	if e.Kind() == ast.LiteralKind {
		if s, ok := e.AsLiteral().(types.String); ok {
			size := int64(utf8.RuneCountInString(string(s)))
			return &text{literal: string(s), write: func(f *frame) (int64, bool) {
				f.text = append(f.text, s...)
				return size, true
			}}
		}
		return nil
	}
	if r.is(e, "_+_", 2) {
		args := operandsOf(e)
		return r.sum(r.text(args[0]), r.text(args[1]), r.overload(e) == overloads.AddString)
	}
	if r.is(e, "jsonpatch.escapeKey", 1) {
		return r.escaped(r.text(operandsOf(e)[0]))
	}
	var of valueOf
	may, cost := func(k types.Kind) bool { return k == types.StringKind }, int64(0)
	if r.is(e, "string", 1) && !r.constant(e) {
		of, may = r.stringOperand(e)
		cost = 1
	} else {
		of = r.value(e)
	}
	if of == nil {
		return nil
	}
	metered := r.metered
	return &text{write: func(f *frame) (int64, bool) {
		v, ok := of(f)
		f.cost += cost
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
		if !metered {
			return 0, ok
		}
		return int64(utf8.RuneCount(f.text[start:])), ok
	}}
}

// stringOperand reads what string(…) makes a string of and says which types it may
// have. If the checker takes it for one, as a[?"b"] that has an orValue, cel-go
// knows the function for that type only.
func (r *reader) stringOperand(e ast.Expr) (of valueOf, may func(types.Kind) bool) {
	arg := operandsOf(e)[0]
	kind := r.checked.GetType(arg.ID()).Kind()
	return r.value(arg), func(k types.Kind) bool { return kind == k || kind == types.DynKind }
}

// sum is one text behind another. If it is known to be one before it is evaluated,
// its cost depends on its size.
func (r *reader) sum(a, b *text, known bool) *text {
	if a == nil || b == nil {
		return nil
	}
	metered := r.metered
	return &text{write: func(f *frame) (int64, bool) {
		start := len(f.text)
		x, ok := a.write(f)
		if !ok {
			return 0, false
		}
		y, ok := b.write(f)
		if !metered {
			return 0, ok
		}
		if known {
			// Texts can grow with each sum.
			f.cost += traversal(x + y)
			ok = ok && f.cost <= f.limit
		} else {
			f.cost++
		}
		// Not x + y: what is no UTF-8 may become some at the seam.
		return int64(utf8.RuneCount(f.text[start:])), ok
	}}
}

var keyEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// escaped is a text as part of a JSON pointer.
func (r *reader) escaped(of *text) *text {
	if of == nil {
		return nil
	}
	return &text{write: func(f *frame) (int64, bool) {
		start := len(f.text)
		size, ok := of.write(f)
		f.cost += traversal(size)
		if plain := f.text[start:]; bytes.ContainsAny(plain, "~/") {
			f.text = append(f.text[:start], keyEscapes.Replace(string(plain))...)
			size = int64(utf8.RuneCount(f.text[start:]))
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

// stringTests are functions of two strings, with what they cost by their sizes.
var stringTests = map[string]struct {
	test func(s, t string) bool
	cost func(s, t int64) int64
}{
	"startsWith": {strings.HasPrefix, func(_, t int64) int64 { return traversal(t) }},
	"endsWith":   {strings.HasSuffix, func(_, t int64) int64 { return traversal(t) }},
	"contains":   {strings.Contains, func(s, t int64) int64 { return traversal(s) * traversal(t) }},
}

// stringTest reads a function of two strings.
func (r *reader) stringTest(e ast.Expr) boolOf {
	args := operandsOf(e)
	function := stringTests[e.AsCall().FunctionName()]
	x, y := r.value(args[0]), r.value(args[1])
	if x == nil || y == nil || r.overload(e) == "" {
		return nil
	}
	metered := r.metered
	return func(f *frame) (bool, bool) {
		a, ok := x(f)
		if !ok {
			return false, false
		}
		b, ok := y(f)
		if !ok {
			return false, false
		}
		s, isString := a.(string)
		t, isAlso := b.(string)
		if !isString || !isAlso {
			return false, false
		}
		if metered {
			f.cost += function.cost(sizeCost(a), sizeCost(b))
		}
		if !f.read(len(s) + len(t)) {
			return false, false
		}
		return function.test(s, t), true
	}
}

// matches reads a test with a pattern that is written out.
func (r *reader) matches(e ast.Expr) boolOf {
	args := operandsOf(e)
	pattern := literalText(args[1])
	of := r.value(args[0])
	compiled := (*Activation)(nil).compile(pattern)
	if of == nil || pattern == "" || compiled.err != nil || r.overload(e) == "" {
		return nil
	}
	perUnit := int64(math.Ceil(float64(utf8.RuneCountInString(pattern)) * common.RegexStringLengthCostFactor))
	return func(f *frame) (bool, bool) {
		v, ok := of(f)
		s, isString := v.(string)
		if !ok || !isString {
			return false, false
		}
		f.cost += traversal(1+sizeCost(v)) * perUnit
		work := compiled.instructions * int64(len(s))
		if work > atOnce || !f.read(int(work)) {
			return false, false
		}
		return compiled.regex.MatchString(s), true
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

// substring is that of a string in which bytes are code points, from the first bound
// to the second or else to the end.
func substring(of valueOf, bounds ...valueOf) valueOf {
	if of == nil || slices.ContainsFunc(bounds, func(b valueOf) bool { return b == nil }) {
		return nil
	}
	return func(f *frame) (any, bool) {
		v, ok := of(f)
		s, isString := v.(string)
		if !ok || !isString || !isASCII(s) {
			return nil, false
		}
		at := [2]int64{1: int64(len(s))}
		for i, of := range bounds {
			if at[i], ok = small(of(f)); !ok {
				return nil, false
			}
		}
		if at[0] < 0 || at[1] < at[0] || at[1] > int64(len(s)) {
			return nil, false
		}
		f.cost += traversal(int64(len(s)))
		return s[at[0]:at[1]], f.read(len(s))
	}
}

// joinedStrings is a list of strings as one.
func joinedStrings(list, separator valueOf) valueOf {
	if list == nil || separator == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		v, by, ok := both(f, list, separator)
		elements, isList := listOf(v)
		between, isString := by.(string)
		if !ok || !isList || !isString {
			return nil, false
		}
		start := len(f.text)
		defer func() { f.text = f.text[:start] }()
		for i, e := range elements {
			s, isString := e.(string)
			if !isString || !f.make(len(s)+len(between)) || !f.read(len(s)+len(between)) {
				return nil, false
			}
			if i > 0 {
				f.text = append(f.text, between...)
			}
			f.text = append(f.text, s...)
		}
		s := string(f.text[start:])
		f.cost += traversal(2 * int64(utf8.RuneCountInString(s)))
		return s, true
	}
}
