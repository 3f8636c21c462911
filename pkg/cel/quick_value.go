package cel

import (
	"math"
	"slices"
	"strconv"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
)

// madeList and madeMap are what an expression itself makes. Their elements are not
// converted as those of data are when they get into an Object (spec §7.2), so the
// two must be told apart there; everywhere else they are like data.
type (
	madeList []any
	madeMap  map[string]any
)

func listOf(v any) ([]any, bool) {
	switch v := v.(type) {
	case []any:
		return v, true
	case madeList:
		return v, true
	}
	return nil, false
}

func mapOf(v any) (map[string]any, bool) {
	switch v := v.(type) {
	case map[string]any:
		return v, true
	case madeMap:
		return v, true
	}
	return nil, false
}

// newList makes a value of what an expression made.
func newList(v []any, made bool) any {
	if v == nil {
		v = []any{}
	}
	if made {
		return madeList(v)
	}
	return v
}

// listing is newList for what elements and gathered read.
func (r *reader) listing(of func(f *frame) ([]any, bool)) valueOf {
	if of == nil {
		return nil
	}
	made := r.forms // closures do not keep the reader
	return func(f *frame) (any, bool) {
		v, ok := of(f)
		return newList(v, made), ok
	}
}

// value reads an expression whose value is JSON data: nil, bool, string, int64,
// float64, lists and maps of them, and whatever else an object may hold by
// mistake, which is not looked into.
func (r *reader) value(e ast.Expr) valueOf {
	if e.Kind() == ast.LiteralKind {
		return literalValue(e)
	}
	return r.once(e, r.computed(e))
}

// once makes a constant of what computes one: it costs nothing and is made now.
func (r *reader) once(e ast.Expr, of valueOf) valueOf {
	if of == nil || !r.constant(e) {
		return of
	}
	v, ok := of(&frame{limit: math.MaxInt64, scale: scale{left: MaxResult}})
	if !ok {
		return nil
	}
	return literalOf(v)
}

func (r *reader) computed(e ast.Expr) valueOf {
	if c, attribute := r.chain(e); attribute {
		return c.value(true)
	}
	switch e.Kind() {
	case ast.SelectKind:
		if e.AsSelect().IsTestOnly() {
			return fromBool(r.has(e.AsSelect()))
		}
	case ast.ListKind:
		return r.listing(r.elements(e.AsList(), r.value))
	case ast.MapKind:
		of, made := r.entries(e.AsMap(), r.value), r.forms
		if of == nil {
			return nil
		}
		return func(f *frame) (any, bool) {
			v, ok := of(f)
			if made {
				return madeMap(v), ok
			}
			return v, ok
		}
	case ast.ComprehensionKind:
		if of := r.binding(e, r.value); of != nil {
			return of
		}
		if of := r.listing(r.gathered(e, r.value)); of != nil {
			return of
		}
		return fromBool(r.quantifier(e))
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
	return literalOf(v)
}

func literalOf(v any) valueOf {
	return func(*frame) (any, bool) { return v, true }
}

// elements reads a literal list, entries a literal map; read reads their parts.
func (r *reader) elements(l ast.ListExpr, read func(ast.Expr) valueOf) func(f *frame) ([]any, bool) {
	if len(l.OptionalIndices()) > 0 {
		return nil
	}
	elements := make([]valueOf, 0, l.Size())
	for _, e := range l.Elements() {
		v := read(e)
		if v == nil {
			return nil
		}
		elements = append(elements, v)
	}
	return func(f *frame) ([]any, bool) {
		f.cost += 10
		if len(elements) == 0 {
			return nil, true
		}
		if !f.make(slotBytes * len(elements)) {
			return nil, false
		}
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

func (r *reader) entries(m ast.MapExpr, read func(ast.Expr) valueOf) func(f *frame) (map[string]any, bool) {
	type entry struct {
		name    string
		key, of valueOf
	}
	entries := make([]entry, 0, m.Size())
	seen := make(map[string]bool, m.Size())
	for _, e := range m.Entries() {
		from := e.AsMapEntry()
		to := entry{name: literalText(from.Key()), of: read(from.Value())}
		if to.name == "" {
			to.key = r.value(from.Key())
		}
		if from.IsOptional() || to.of == nil || to.name == "" && to.key == nil || seen[to.name] {
			return nil
		}
		seen[to.name] = to.name != ""
		entries = append(entries, to)
	}
	return func(f *frame) (map[string]any, bool) {
		f.cost += 30
		if !f.make(4 * slotBytes * len(entries)) {
			return nil, false
		}
		out := make(map[string]any, len(entries))
		for i := range entries {
			e := &entries[i]
			name := e.name
			if e.key != nil {
				k, ok := e.key(f)
				var isName bool
				if name, isName = k.(string); !ok || !isName {
					return nil, false
				}
			}
			v, ok := e.of(f)
			if !ok {
				return nil, false
			}
			out[name] = v
		}
		return out, true
	}
}

func (r *reader) call(e ast.Expr) valueOf {
	args := operandsOf(e)
	switch {
	case r.is(e, "dyn", 1):
		return priced(1, r.value(args[0]))
	case r.is(e, "_?_:_", 3):
		return chosen(r.boolean(args[0]), r.resolved(args[1]), r.resolved(args[2]))
	case r.is(e, "orValue", 2):
		return orValue(r.anOptional(args[0]), r.value(args[1]))
	case r.is(e, "value", 1) && r.isOptional(args[0]):
		of := r.anOptional(args[0])
		if of == nil {
			return nil
		}
		return func(f *frame) (any, bool) {
			v, has, ok := of(f)
			f.cost++
			return v, ok && has
		}
	case r.is(e, "size", 1):
		return sizeOf(r.value(args[0]))
	case r.is(e, "_-_", 2):
		return reckon(r.value(args[0]), r.value(args[1]), func(x, y int64) int64 { return x - y })
	case r.is(e, "_+_", 2) && r.checked.GetType(e.ID()).Kind() == types.IntKind:
		return reckon(r.value(args[0]), r.value(args[1]), func(x, y int64) int64 { return x + y })
	case r.is(e, "_+_", 2) && r.overload(e) == overloads.AddList:
		return joined(r.value(args[0]), r.value(args[1]))
	case r.is(e, "substring", 2):
		return substring(r.value(args[0]), r.value(args[1]))
	case r.is(e, "substring", 3):
		return substring(r.value(args[0]), r.value(args[1]), r.value(args[2]))
	case r.is(e, "reverse", 1) && e.AsCall().IsMemberFunction() && !r.metered:
		return r.reversed(r.value(args[0]))
	case r.is(e, "string", 1):
		of, may := r.stringOperand(e)
		if of == nil {
			return nil
		}
		return func(f *frame) (any, bool) {
			v, ok := of(f)
			f.cost++
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
	case r.is(e, "join", 1):
		return joinedStrings(r.value(args[0]), literalOf(""))
	case r.is(e, "join", 2):
		return joinedStrings(r.value(args[0]), r.value(args[1]))
	case r.is(e, "jsonpatch.escapeKey", 1), r.is(e, "_+_", 2) && r.checked.GetType(e.ID()) == types.StringType:
		t := r.text(e)
		if t == nil {
			return nil
		}
		return func(f *frame) (any, bool) {
			s, ok := t.join(f)
			return s, ok
		}
	}
	b, _ := r.truth(e)
	return fromBool(b)
}

func chosen(condition boolOf, then, otherwise valueOf) valueOf {
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
}

func orValue(first optionalOf, second valueOf) valueOf {
	if first == nil || second == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		if v, has, ok := first(f); !ok || has {
			return v, ok
		}
		return second(f)
	}
}

func (r *reader) reversed(of valueOf) valueOf {
	if of == nil {
		return nil
	}
	return r.listing(func(f *frame) ([]any, bool) {
		v, ok := of(f)
		list, isList := listOf(v)
		if !ok || !isList || !f.make(slotBytes*len(list)) {
			return nil, false
		}
		list = slices.Clone(list)
		slices.Reverse(list)
		return list, true
	})
}

// joined is a list behind another. cel-go converts the elements to Go values on
// the way, where null and what an expression made become something else.
func joined(first, second valueOf) valueOf {
	if first == nil || second == nil {
		return nil
	}
	plain := func(list []any) bool {
		return !slices.ContainsFunc(list, func(v any) bool {
			switch v := v.(type) {
			case bool, string, int64, float64:
				return false
			case map[string]any:
				return v == nil
			case []any:
				return v == nil
			}
			return true
		})
	}
	return func(f *frame) (any, bool) {
		a, ok := first(f)
		if !ok {
			return nil, false
		}
		b, ok := second(f)
		if !ok {
			return nil, false
		}
		f.cost++
		x, isList := listOf(a)
		y, isAlso := listOf(b)
		switch {
		case !isList || !isAlso:
			return nil, false
		case len(x) == 0:
			return b, true
		case len(y) == 0:
			return a, true
		case !plain(x) || !plain(y):
			return nil, false
		}
		if f.copied += len(x) + len(y); f.copied > maxCopied || !f.make(slotBytes*(len(x)+len(y))) {
			return nil, false
		}
		return slices.Concat(x, y), true
	}
}

// sizeOf is that of a list, a map or a string.
func sizeOf(of valueOf) valueOf {
	if of == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		v, ok := of(f)
		f.cost++
		switch v := v.(type) {
		case string:
			return sizeCost(v), ok && f.read(len(v))
		case []any, map[string]any, madeList, madeMap:
			return sizeCost(v), ok
		}
		return nil, false
	}
}

// reckon is a function of small integers.
func reckon(a, b valueOf, function func(x, y int64) int64) valueOf {
	if a == nil || b == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		x, ok := small(a(f))
		if !ok {
			return nil, false
		}
		y, ok := small(b(f))
		f.cost++
		return function(x, y), ok
	}
}

// small returns an integer with which one can reckon freely.
func small(v any, ok bool) (int64, bool) {
	n, isInt := v.(int64)
	return n, ok && isInt && n == int64(int32(n))
}
