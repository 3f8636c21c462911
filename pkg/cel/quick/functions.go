package quick

import (
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"

	"github.com/google/cel-go/common/ast"
)

// function is a supported function: its operands, by the overloads that the checker allows; the
// cost of a call without its operands; and how it is evaluated. Costs are those of cel-go's
// interpreter/runtimecost.go and of k8s.io/apiserver's pkg/cel/library/cost.go. Overload ids
// are unique among all functions.
type function struct {
	overloads []string
	// sure says that only calls are supported that are bound to their overload at compile time,
	// unmetered that they are only supported if costs are not counted.
	sure, unmetered bool

	// One of apply, read, text and step evaluates a call.

	// apply evaluates a call whose operands are all evaluated, as data. Missing operands are
	// none. It adds costs that depend on sizes to f.
	apply func(f *frame, x, y, z any) (any, bool)
	cost  int64
	// read is for all other calls. It is called for data only, unless flows is set, which is
	// for every dest.
	read  func(r *reader, c call) part
	flows bool
	// optional says that read supports calls whose value is an optional.
	optional bool
	// text writes a string to a text that is being concatenated. It is used in addition to
	// read.
	text func(r *reader, c call) *text
	// step is for calls that are part of an attribute.
	step stepKind
}

type stepKind uint8

const (
	plainStep stepKind = 1 + iota
	optionalStep
)

var functions = map[string]*function{
	// Attributes. See attribute.go for what they cost.
	operators.Index: {step: plainStep, overloads: []string{overloads.IndexList, overloads.IndexMap,
		"optional_list_index_int", "optional_map_index_value"}},
	operators.OptIndex: {step: optionalStep, overloads: []string{"list_optindex_optional_int", "optional_list_optindex_optional_int",
		"map_optindex_optional_value", "optional_map_optindex_optional_value"}},
	operators.OptSelect: {step: optionalStep, overloads: []string{"select_optional_field"}},

	// Logic. The operands of && and || are evaluated from the left.
	operators.LogicalNot:       {cost: 1, apply: not, overloads: []string{overloads.LogicalNot}},
	operators.LogicalAnd:       {read: junction(false), overloads: []string{overloads.LogicalAnd}},
	operators.LogicalOr:        {read: junction(true), overloads: []string{overloads.LogicalOr}},
	operators.Conditional:      {read: conditional, flows: true, optional: true, overloads: []string{overloads.Conditional}},
	operators.NotStrictlyFalse: {overloads: []string{overloads.NotStrictlyFalse}}, // in macros only

	// Comparisons.
	operators.Equals:          {read: equality(true), overloads: []string{overloads.Equals}},
	operators.NotEquals:       {read: equality(false), overloads: []string{overloads.NotEquals}},
	overloads.TypeConvertType: {cost: 1, apply: func(_ *frame, x, _, _ any) (any, bool) { t := typeName(x); return t, t != "" }, overloads: []string{overloads.TypeConvertType}},
	operators.Less:            {cost: 1, apply: order(func(x, y int64) bool { return x < y }), overloads: []string{overloads.LessInt64}},
	operators.LessEquals:      {cost: 1, apply: order(func(x, y int64) bool { return x <= y }), overloads: []string{overloads.LessEqualsInt64}},
	operators.Greater:         {cost: 1, apply: order(func(x, y int64) bool { return x > y }), overloads: []string{overloads.GreaterInt64}},
	operators.GreaterEquals:   {cost: 1, apply: order(func(x, y int64) bool { return x >= y }), overloads: []string{overloads.GreaterEqualsInt64}},
	operators.In:              {read: membership, overloads: []string{overloads.InList, overloads.InMap}},

	// Numbers must fit 32 bits, so that nothing overflows.
	operators.Subtract: {cost: 1, apply: arithmetic(func(x, y int64) int64 { return x - y }), overloads: []string{overloads.SubtractInt64}},
	operators.Add:      {read: sum, flows: true, text: sumOfTexts, overloads: []string{overloads.AddInt64, overloads.AddString, overloads.AddList}},

	// Strings.
	overloads.TypeConvertString: {read: readString, text: func(r *reader, c call) *text { return textOf(r.value(c.args[0]), 1, c.mayBe(r)) },
		overloads: []string{overloads.StringToString, overloads.BoolToString, overloads.IntToString}},
	overloads.StartsWith: {apply: stringTest(strings.HasPrefix, func(_, t int64) int64 { return traversal(t) }),
		sure: true, overloads: []string{overloads.StartsWithString}},
	overloads.EndsWith: {apply: stringTest(strings.HasSuffix, func(_, t int64) int64 { return traversal(t) }),
		sure: true, overloads: []string{overloads.EndsWithString}},
	overloads.Contains: {apply: stringTest(strings.Contains, func(s, t int64) int64 { return traversal(s) * traversal(t) }),
		sure: true, overloads: []string{overloads.ContainsString}},
	overloads.Matches:     {read: matches, sure: true, overloads: []string{overloads.Matches, overloads.MatchesString}},
	"substring":           {apply: substring, overloads: []string{"string_substring_int", "string_substring_int_int"}},
	"jsonpatch.escapeKey": {text: escapedText, overloads: []string{"string_jsonpatch_escapeKey_string"}},

	// Lists.
	overloads.Size: {cost: 1, apply: size, overloads: []string{overloads.SizeString, overloads.SizeList, overloads.SizeMap,
		overloads.SizeStringInst, overloads.SizeListInst, overloads.SizeMapInst}},
	"join":    {apply: join, overloads: []string{"list_join", "list_join_string"}},
	"reverse": {read: reversed, unmetered: true, overloads: []string{"list_reverse"}},
	"flatten": {read: flattened, flows: true, unmetered: true, overloads: []string{"list_flatten"}},

	// Optionals. Of two alternatives the second is evaluated if the first is empty.
	"optional.none": {read: func(*reader, call) part { return priced(1, constant(none{})) }, optional: true, overloads: []string{"optional_none"}},
	"optional.of": {read: func(r *reader, c call) part { return priced(1, r.read(c.args[0], c.dest, true)) },
		optional: true, overloads: []string{"optional_of"}},
	"or": {read: func(r *reader, c call) part {
		return alternative(r.optional(c.args[0], c.dest, true), r.optional(c.args[1], c.dest, true))
	}, optional: true, overloads: []string{"optional_or_optional"}},
	"orValue": {read: func(r *reader, c call) part {
		return alternative(r.optional(c.args[0], data, true), r.value(c.args[1]))
	},
		overloads: []string{"optional_orValue_value"}},
	"value":    {read: ofOptional(func(v any, has bool) (any, bool) { return v, has }), overloads: []string{"optional_value"}},
	"hasValue": {read: ofOptional(func(_ any, has bool) (any, bool) { return has, true }), overloads: []string{"optional_hasValue"}},

	// dyn is the value itself.
	overloads.TypeConvertDyn: {cost: 1, apply: func(_ *frame, x, _, _ any) (any, bool) { return x, true }, overloads: []string{overloads.ToDyn}},
}

func not(_ *frame, x, _, _ any) (any, bool) {
	b, ok := x.(bool)
	return !b, ok
}

// junction returns a reader for && or ||. If the left operand is ending, it alone decides.
func junction(ending bool) func(r *reader, c call) part {
	return func(r *reader, c call) part {
		left, right := r.value(c.args[0]), r.value(c.args[1])
		if left == nil || right == nil {
			return nil
		}
		return func(f *frame) (any, bool) {
			b, ok := truth(left, f)
			if ok && b != ending {
				b, ok = truth(right, f)
			}
			return b, ok
		}
	}
}

func conditional(r *reader, c call) part {
	operand := func(e ast.Expr) part {
		if c.optional {
			return r.optional(e, c.dest, false)
		}
		return r.read(e, c.dest, false)
	}
	return chosen(r.value(c.args[0]), operand(c.args[1]), operand(c.args[2]))
}

// equality compares two values.
func equality(equals bool) func(r *reader, c call) part {
	return func(r *reader, c call) part {
		x, y := r.value(c.args[0]), r.value(c.args[1])
		if x == nil || y == nil {
			return nil
		}
		return func(f *frame) (any, bool) {
			a, ok := x(f)
			if !ok {
				return nil, false
			}
			b, ok := y(f)
			if !ok {
				return nil, false
			}
			if f.metered {
				f.Cost += traversal(min(sizeOf(a), sizeOf(b)))
				if s, ok := a.(string); ok && !f.read(len(s)) {
					return nil, false
				}
			}
			same, ok := equal(a, b)
			return same == equals, ok
		}
	}
}

func order(holds func(x, y int64) bool) func(f *frame, x, y, z any) (any, bool) {
	return func(_ *frame, x, y, _ any) (any, bool) {
		m, ok := x.(int64)
		n, also := y.(int64)
		return holds(m, n), ok && also
	}
}

// membership reads x in list and x in map. cel-go makes a set of a literal list of scalars,
// whose look-up costs nothing.
func membership(r *reader, c call) part {
	if r.inNothing(c.e) {
		return constant(false)
	}
	x, in := r.value(c.args[0]), r.value(c.args[1])
	if x == nil || in == nil {
		return nil
	}
	ofList := r.overload(c.e) == overloads.InList
	set := ofList && r.constant(c.args[1])
	var names map[string]bool
	if set {
		names = namesIn(c.args[1])
	}
	return func(f *frame) (any, bool) {
		v, ok := x(f)
		if !ok {
			return nil, false
		}
		where, ok := in(f)
		if !ok {
			return nil, false
		}
		switch {
		case !f.metered || set:
		case ofList:
			f.Cost += sizeOf(where)
		default:
			f.Cost++
		}
		if m, isMap := mapOf(where); isMap {
			name, isName := v.(string)
			_, has := m[name]
			return has, isName
		}
		if names != nil {
			name, isName := v.(string)
			return isName && names[name], isScalar(v)
		}
		list, ok := listOf(where)
		if !ok || f.metered && set && (!isScalar(v) || slices.ContainsFunc(list, func(v any) bool { return !isScalar(v) })) {
			return nil, false
		}
		for _, y := range list {
			if !f.turn() {
				return nil, false
			}
			if same, ok := equal(v, y); !ok || same {
				return same, ok
			}
		}
		return false, true
	}
}

// namesIn returns a literal list of strings as a set, nil for other lists. Many such lists are
// long, and cel-go charges nothing for the look-up.
func namesIn(list ast.Expr) map[string]bool {
	if list.Kind() != ast.ListKind {
		return nil
	}
	set := map[string]bool{}
	for _, e := range list.AsList().Elements() {
		s, isString := e.AsLiteral().(types.String)
		if e.Kind() != ast.LiteralKind || !isString {
			return nil
		}
		set[string(s)] = true
	}
	return set
}

// arithmetic applies of to integers that cannot overflow.
func arithmetic(of func(x, y int64) int64) func(f *frame, x, y, z any) (any, bool) {
	return func(_ *frame, x, y, _ any) (any, bool) {
		m, ok := small(x)
		n, also := small(y)
		return of(m, n), ok && also
	}
}

var plus = function{cost: 1, apply: arithmetic(func(x, y int64) int64 { return x + y })}

// sum reads + of integers, strings and lists.
func sum(r *reader, c call) part {
	if c.dest.kind == toOperations {
		return inTurn(1, r.read(c.args[0], operations, true), r.read(c.args[1], operations, true))
	}
	switch t := r.checked.GetType(c.e.ID()); {
	case t.Kind() == types.IntKind:
		return r.converted(plus.strict(r.values(c.args)), c.dest)
	case t == types.StringType:
		return r.converted(sumOfTexts(r, c).value(), c.dest)
	case r.overload(c.e) != overloads.AddList:
		return nil
	case c.dest.kind == toField && makesList(c.args[0]) && makesList(c.args[1]):
		return r.sumOfItems(c)
	}
	return r.converted(joined.strict(r.values(c.args)), c.dest)
}

// makesList reports whether the expression makes its elements.
func makesList(e ast.Expr) bool { return e.Kind() == ast.ListKind || e.Kind() == ast.ComprehensionKind }

// joined concatenates lists. cel-go converts the elements to Go values for that, which changes
// nulls and elements that the expression made.
var joined = function{cost: 1, apply: func(f *frame, a, b, _ any) (any, bool) {
	x, isList := listOf(a)
	y, isAlso := listOf(b)
	switch {
	case !isList || !isAlso:
		return nil, false
	case len(x) == 0:
		return b, true
	case len(y) == 0:
		return a, true
	}
	for _, list := range [...][]any{x, y} {
		for _, v := range list {
			if _, ok := item(v); v == nil || !ok {
				return nil, false
			}
		}
	}
	if f.copied += len(x) + len(y); f.copied > maxCopied || !f.make(SlotBytes*(len(x)+len(y))) {
		return nil, false
	}
	return slices.Concat(x, y), true
}}

// sumOfItems reads a concatenation of lists as the value of a field. It declines items that
// need more than one conversion.
func (r *reader) sumOfItems(c call) part {
	first, second := r.read(c.args[0], c.dest, true), r.read(c.args[1], c.dest, true)
	if first == nil || second == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		v, ok := first(f)
		if !ok {
			return nil, false
		}
		w, ok := second(f)
		f.Cost++
		x, isList := v.([]any)
		y, isAlso := w.([]any)
		switch {
		case !ok || !isList || !isAlso:
			return nil, false
		case len(x) == 0:
			return y, true
		case len(y) == 0:
			return x, true
		}
		out := append(x[:len(x):len(x)], y...)
		return out, Shareable(out)
	}
}

func stringTest(test func(s, t string) bool, cost func(s, t int64) int64) func(f *frame, x, y, z any) (any, bool) {
	return func(f *frame, x, y, _ any) (any, bool) {
		s, ok := x.(string)
		t, also := y.(string)
		if !ok || !also {
			return nil, false
		}
		if f.metered {
			f.Cost += cost(sizeOf(s), sizeOf(t))
		}
		return test(s, t), f.read(len(s) + len(t))
	}
}

// matches reads a match with a literal pattern.
func matches(r *reader, c call) part {
	pattern := literalText(c.args[1])
	of := r.value(c.args[0])
	if of == nil || pattern == "" {
		return nil
	}
	regex, instructions := r.Pattern(pattern)
	if regex == nil {
		return nil
	}
	perUnit := int64(math.Ceil(float64(utf8.RuneCountInString(pattern)) * common.RegexStringLengthCostFactor))
	return func(f *frame) (any, bool) {
		v, ok := of(f)
		s, isString := v.(string)
		if !ok || !isString {
			return nil, false
		}
		f.Cost += traversal(1+sizeOf(v)) * perUnit
		work := instructions * int64(len(s))
		if work > MatchAtOnce || !f.read(int(work)) {
			return nil, false
		}
		return regex.MatchString(s), true
	}
}

// substring returns a part of a string that is all ASCII, from the first bound to the second or
// else to the end.
func substring(f *frame, x, from, to any) (any, bool) {
	s, ok := x.(string)
	if !ok || strings.ContainsFunc(s, func(c rune) bool { return c >= utf8.RuneSelf }) {
		return nil, false
	}
	end := int64(len(s))
	if _, none := to.(none); !none {
		if end, ok = small(to); !ok {
			return nil, false
		}
	}
	start, ok := small(from)
	if !ok || start < 0 || end < start || end > int64(len(s)) {
		return nil, false
	}
	f.Cost += traversal(int64(len(s)))
	return s[start:end], f.read(len(s))
}

// size returns the size of a list, a map or a string.
func size(f *frame, x, _, _ any) (any, bool) {
	switch v := x.(type) {
	case string:
		return sizeOf(v), f.read(len(v))
	case []any, map[string]any, List, Map:
		return sizeOf(v), true
	}
	return nil, false
}

// join concatenates the strings of a list.
func join(f *frame, x, by, _ any) (any, bool) {
	elements, isList := listOf(x)
	between, isString := by.(string)
	if _, none := by.(none); !isList || !isString && !none {
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
	f.Cost += traversal(2 * int64(utf8.RuneCountInString(s)))
	return s, true
}

func reversed(r *reader, c call) part {
	of := r.value(c.args[0])
	if of == nil {
		return nil
	}
	finish := r.newList(data)
	return func(f *frame) (any, bool) {
		v, ok := of(f)
		list, isList := listOf(v)
		if !ok || !isList || !f.make(SlotBytes*len(list)) {
			return nil, false
		}
		list = slices.Clone(list)
		slices.Reverse(list)
		return finish(list), true
	}
}

// flattened reads a list of patches that becomes a patch.
func flattened(r *reader, c call) part {
	if c.dest.kind != toOperations || !r.checked.GetType(c.args[0].ID()).IsExactType(types.NewListType(patchType)) {
		return nil
	}
	return r.read(c.args[0], operations, true)
}

// alternative evaluates an optional, and another part if the optional is empty.
func alternative(first, second part) part {
	if first == nil || second == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		v, ok := first(f)
		if _, empty := v.(none); ok && empty {
			return second(f)
		}
		return v, ok
	}
}

// ofOptional is for functions of an optional, which cost 1.
func ofOptional(apply func(v any, has bool) (any, bool)) func(r *reader, c call) part {
	return func(r *reader, c call) part {
		of := r.optional(c.args[0], data, true)
		if of == nil {
			return nil
		}
		return func(f *frame) (any, bool) {
			v, ok := of(f)
			f.Cost++
			if !ok {
				return nil, false
			}
			_, empty := v.(none)
			return apply(v, !empty)
		}
	}
}
