package cel

import (
	"strings"

	"github.com/google/cel-go/common/ast"
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
		return r.quantifier(e)
	case ast.CallKind:
		if b, known := r.truth(e); known {
			return b
		}
	}
	if e.Kind() == ast.CallKind && !is(e, "_?_:_", 3) && !is(e, "orValue", 2) {
		return nil // value would ask again
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
	case is(e, "!_", 1):
		return negated(r.boolean(args[0])), true
	case is(e, "_&&_", 2):
		return junction(false, r.boolean(args[0]), r.boolean(args[1])), true
	case is(e, "_||_", 2):
		return junction(true, r.boolean(args[0]), r.boolean(args[1])), true
	case is(e, "_==_", 2):
		return r.equality(args[0], args[1]), true
	case is(e, "_!=_", 2):
		return negated(r.equality(args[0], args[1])), true
	case is(e, "@in", 2):
		return contains(r.value(args[1]), r.value(args[0])), true
	case is(e, "hasValue", 1):
		o := r.optional(args[0])
		if o == nil {
			return nil, true
		}
		return func(f *frame) (bool, bool) {
			_, has, ok := o(f)
			return has, ok
		}, true
	case is(e, "startsWith", 2):
		return ofStrings(r.value(args[0]), r.value(args[1]), strings.HasPrefix), true
	case is(e, "endsWith", 2):
		return ofStrings(r.value(args[0]), r.value(args[1]), strings.HasSuffix), true
	}
	return nil, false
}

func (r *reader) has(s ast.SelectExpr) boolOf {
	of, name := r.value(s.Operand()), s.FieldName()
	if of == nil {
		return nil
	}
	return func(f *frame) (bool, bool) {
		v, ok := of(f)
		m, isMap := v.(map[string]any)
		_, has := m[name]
		return has, ok && isMap
	}
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

// quantifier reads all and exists. What a turn gives up on another may decide,
// but cel-go knows that.
func (r *reader) quantifier(e ast.Expr) boolOf {
	c := e.AsComprehension()
	if c.HasIterVar2() || !isName(c.Result(), c.AccuVar()) || c.AccuInit().Kind() != ast.LiteralKind {
		return nil
	}
	init, isBool := c.AccuInit().AsLiteral().(types.Bool)
	function := "_||_"
	if init == types.True {
		function = "_&&_"
	}
	step := c.LoopStep()
	if !isBool || !is(step, function, 2) || !isName(step.AsCall().Args()[0], c.AccuVar()) || !is(c.LoopCondition(), "@not_strictly_false", 1) {
		return nil
	}
	ending := init == types.False
	until := c.LoopCondition().AsCall().Args()[0]
	if ending {
		if !is(until, "!_", 1) {
			return nil
		}
		until = until.AsCall().Args()[0]
	}
	if !isName(until, c.AccuVar()) {
		return nil
	}
	l := &loop{over: r.value(c.IterRange()), keys: true}
	if l.over == nil {
		return nil
	}
	var test boolOf
	r.within(c, l, func() bool {
		test = r.boolean(step.AsCall().Args()[1])
		return true
	})
	if test == nil {
		return nil
	}
	return func(f *frame) (bool, bool) {
		decided := false
		ok := l.each(f, func(f *frame) (more, ok bool) {
			b, ok := test(f)
			decided = b == ending
			return !decided, ok
		})
		return decided == ending, ok
	}
}

// equality compares two values, or the type of one with a type.
func (r *reader) equality(a, b ast.Expr) boolOf {
	if is(b, "type", 1) {
		a, b = b, a
	}
	if is(a, "type", 1) {
		return r.typeTest(operandsOf(a)[0], b)
	}
	x, y := r.value(a), r.value(b)
	if x == nil || y == nil {
		return nil
	}
	return func(f *frame) (bool, bool) {
		x, ok := x(f)
		if !ok {
			return false, false
		}
		y, ok := y(f)
		if !ok {
			return false, false
		}
		return equal(x, y)
	}
}

func (r *reader) typeTest(e, typ ast.Expr) boolOf {
	of := r.value(e)
	if of == nil || typ.Kind() != ast.IdentKind || r.variable(typ.AsIdent()) >= 0 {
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
	}
	return ""
}

// equal compares scalars. It gives up on numbers of two types and where it would
// have to compare lists or maps with each other.
func equal(x, y any) (value, ok bool) {
	a, b := typeName(x), typeName(y)
	switch {
	case a == "" || b == "":
		return false, false
	case a != b:
		number := (a == "int" || a == "double") && (b == "int" || b == "double")
		return false, !number
	case a == "map" || a == "list":
		return false, false
	}
	return x == y, true
}

// contains reads x in list.
func contains(in, of valueOf) boolOf {
	if in == nil || of == nil {
		return nil
	}
	return func(f *frame) (bool, bool) {
		x, ok := of(f)
		if !ok {
			return false, false
		}
		where, ok := in(f)
		if !ok {
			return false, false
		}
		list, ok := where.([]any)
		if !ok {
			return false, false
		}
		for _, y := range list {
			if !f.turn() {
				return false, false
			}
			if same, ok := equal(x, y); !ok || same {
				return same, ok
			}
		}
		return false, true
	}
}

// ofStrings is a function of two strings.
func ofStrings(x, y valueOf, function func(x, y string) bool) boolOf {
	if x == nil || y == nil {
		return nil
	}
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
		return function(s, t), isString && isAlso
	}
}
