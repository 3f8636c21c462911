package cel

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
)

// boolean reads an expression whose value is a bool.
func (r *reader) boolean(e ast.Expr) boolOf {
	switch e.Kind() {
	case ast.SelectKind:
		if e.AsSelect().IsTestOnly() {
			return r.has(e.AsSelect())
		}
	case ast.ComprehensionKind:
		if b := r.quantifier(e); b != nil {
			return b
		}
		return toBool(r.binding(e, r.value))
	case ast.CallKind:
		if b, known := r.truth(e); known {
			return b // value would ask again
		}
	}
	return toBool(r.value(e))
}

// toBool gives up on a value that is no bool.
func toBool(of valueOf) boolOf {
	if of == nil {
		return nil
	}
	return func(f *frame) (bool, bool) {
		v, ok := of(f)
		b, isBool := v.(bool)
		return b, ok && isBool
	}
}

func fromBool(of boolOf) valueOf {
	if of == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		b, ok := of(f)
		return b, ok
	}
}

// truth reads calls of functions that return bool.
func (r *reader) truth(e ast.Expr) (_ boolOf, known bool) {
	args := operandsOf(e)
	switch {
	case r.is(e, "!_", 1):
		return pricedBool(1, negated(r.boolean(args[0]))), true
	case r.is(e, "_&&_", 2):
		return junction(false, r.boolean(args[0]), r.boolean(args[1])), true
	case r.is(e, "_||_", 2):
		return junction(true, r.boolean(args[0]), r.boolean(args[1])), true
	case r.is(e, "_==_", 2):
		return r.equality(args[0], args[1]), true
	case r.is(e, "_!=_", 2):
		return negated(r.equality(args[0], args[1])), true
	case r.is(e, "_<_", 2):
		return r.order(e, func(x, y int64) bool { return x < y }), true
	case r.is(e, "_<=_", 2):
		return r.order(e, func(x, y int64) bool { return x <= y }), true
	case r.is(e, "_>_", 2):
		return r.order(e, func(x, y int64) bool { return x > y }), true
	case r.is(e, "_>=_", 2):
		return r.order(e, func(x, y int64) bool { return x >= y }), true
	case r.is(e, "@in", 2):
		return r.membership(e), true
	case r.is(e, "hasValue", 1):
		o := r.anOptional(args[0])
		if o == nil {
			return nil, true
		}
		return func(f *frame) (bool, bool) {
			_, has, ok := o(f)
			f.cost++
			return has, ok
		}, true
	case r.is(e, "startsWith", 2), r.is(e, "endsWith", 2), r.is(e, "contains", 2):
		return r.stringTest(e), true
	case r.is(e, "matches", 2):
		return r.matches(e), true
	}
	return nil, false
}

func negated(of boolOf) boolOf {
	if of == nil {
		return nil
	}
	return func(f *frame) (bool, bool) {
		b, ok := of(f)
		return !b, ok
	}
}

// junction is && or ||, whose left operand alone decides if it is ending.
func junction(ending bool, left, right boolOf) boolOf {
	if left == nil || right == nil {
		return nil
	}
	return func(f *frame) (bool, bool) {
		if b, ok := left(f); !ok || b == ending {
			return b, ok
		}
		return right(f)
	}
}

// both evaluates two operands.
func both(f *frame, x, y valueOf) (a, b any, ok bool) {
	if a, ok = x(f); !ok {
		return nil, nil, false
	}
	b, ok = y(f)
	return a, b, ok
}

// order compares integers.
func (r *reader) order(e ast.Expr, holds func(x, y int64) bool) boolOf {
	args := operandsOf(e)
	x, y := r.value(args[0]), r.value(args[1])
	if x == nil || y == nil {
		return nil
	}
	return func(f *frame) (bool, bool) {
		a, b, ok := both(f, x, y)
		m, isInt := a.(int64)
		n, isAlso := b.(int64)
		f.cost++
		return holds(m, n), ok && isInt && isAlso
	}
}

// equality compares two values, or the type of one with a type.
func (r *reader) equality(a, b ast.Expr) boolOf {
	if r.is(b, "type", 1) {
		a, b = b, a
	}
	if r.is(a, "type", 1) {
		return r.typeTest(operandsOf(a)[0], b)
	}
	x, y := r.value(a), r.value(b)
	if x == nil || y == nil {
		return nil
	}
	metered := r.metered
	return func(f *frame) (bool, bool) {
		a, b, ok := both(f, x, y)
		if !ok {
			return false, false
		}
		if metered {
			f.cost += traversal(min(sizeCost(a), sizeCost(b)))
			if s, ok := a.(string); ok && !f.read(len(s)) {
				return false, false
			}
		}
		return equal(a, b)
	}
}

// typeTest compares the type of e. It costs one for each of the two calls.
func (r *reader) typeTest(e, typ ast.Expr) boolOf {
	of := r.value(e)
	if of == nil || r.constant(e) || typ.Kind() != ast.IdentKind || r.variable(typ.AsIdent()) != nil {
		return nil
	}
	want := typ.AsIdent()
	switch want {
	case "map", "list", "string", "int", "double", "bool":
	default:
		return nil
	}
	return func(f *frame) (bool, bool) {
		v, ok := of(f)
		got := typeName(v)
		f.cost += 2
		return got == want, ok && got != ""
	}
}

// typeName is the CEL type of data, "" if it does not belong there.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "null_type"
	case bool:
		return "bool"
	case string:
		return "string"
	case int64:
		return "int"
	case float64:
		return "double"
	case map[string]any:
		if v != nil {
			return "map"
		}
	case []any:
		if v != nil {
			return "list"
		}
	case madeMap:
		return "map"
	case madeList:
		return "list"
	}
	return ""
}

// equal compares scalars. It gives up on numbers of two types and where it would
// have to compare the elements of lists or maps with each other.
func equal(x, y any) (value, ok bool) {
	a, b := typeName(x), typeName(y)
	switch {
	case a == "" || b == "":
		return false, false
	case a != b:
		number := (a == "int" || a == "double") && (b == "int" || b == "double")
		return false, !number
	case a == "map" || a == "list":
		m, n := sizeCost(x), sizeCost(y)
		return m == n, m == 0 || n == 0
	}
	return x == y, true
}

// membership reads x in list and x in map. If the list is literal and of scalars
// cel-go makes a set of it, which costs nothing.
func (r *reader) membership(e ast.Expr) boolOf {
	args := operandsOf(e)
	if r.emptyMembership(e) {
		return func(*frame) (bool, bool) { return false, true }
	}
	x, in := r.value(args[0]), r.value(args[1])
	if x == nil || in == nil {
		return nil
	}
	ofList := r.overload(e) == overloads.InList
	set := ofList && r.constant(args[1])
	names := r.names(args[1], set)
	metered := r.metered
	return func(f *frame) (bool, bool) {
		v, where, ok := both(f, x, in)
		if !ok {
			return false, false
		}
		switch {
		case !metered || set:
		case ofList:
			f.cost += sizeCost(where)
		default:
			f.cost++
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
		if !ok || metered && set && (!ofScalars(list) || !isScalar(v)) {
			return false, false
		}
		for _, y := range list {
			if !f.turn() {
				return false, false
			}
			if same, ok := equal(v, y); !ok || same {
				return same, ok
			}
		}
		return false, true
	}
}

// names is a constant list as a set if it is of strings. Many are long, and cel-go
// does not charge for it.
func (r *reader) names(list ast.Expr, constant bool) map[string]bool {
	if !constant || list.Kind() != ast.ListKind {
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

func ofScalars(list []any) bool {
	for _, v := range list {
		if !isScalar(v) {
			return false
		}
	}
	return true
}

func isScalar(v any) bool {
	switch v.(type) {
	case bool, string, int64, float64:
		return true
	}
	return false
}
