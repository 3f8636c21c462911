package cel

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// chain is what cel-go calls an attribute: a.b.?c[d].
type chain struct {
	base     valueOf
	optional optionalOf // the base if it is an optional
	steps    []step
	// own is what the chain costs beside its steps if its value is observed: one more
	// than if it is not, but for that of a ?:.
	own int64
}

// step has a key or a name.
type step struct {
	key      valueOf
	name     string
	optional bool
}

// chain reads an attribute. It reports whether e is one, known or not: then nobody
// else knows it, and to try would take twice the time at each step into it.
func (r *reader) chain(e ast.Expr) (_ *chain, attribute bool) {
	var steps []step
	for {
		s, of := r.step(e)
		if of == nil {
			break
		}
		if s.name == "" && s.key == nil {
			return nil, true
		}
		steps, e = append(steps, s), of
	}
	slices.Reverse(steps)
	c := &chain{steps: steps, own: 1}
	switch {
	case r.isVariables(e):
		if len(steps) == 0 || steps[0].optional {
			return nil, true
		}
		c.base, c.steps = r.defined(steps[0].name), steps[1:]
		c.own++
	case e.Kind() == ast.IdentKind:
		c.base = r.name(e.AsIdent())
	case len(steps) == 0:
		return nil, false
	case r.is(e, "_?_:_", 3):
		c.base = r.value(e)
		c.own = 0
	case r.isOptional(e):
		c.optional = r.anOptional(e)
	default:
		c.base = r.value(e)
	}
	if c.base == nil && c.optional == nil {
		return nil, true
	}
	return c, true
}

// step reads the last step of an attribute and returns what it is made from.
func (r *reader) step(e ast.Expr) (step, ast.Expr) {
	switch {
	case e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly():
		if r.checked.ReferenceMap()[e.ID()] != nil {
			return step{}, nil
		}
		return step{name: e.AsSelect().FieldName()}, e.AsSelect().Operand()
	case r.is(e, "_[_]", 2), r.is(e, "_[?_]", 2), r.is(e, "_?._", 2):
		args := operandsOf(e)
		s := step{name: literalText(args[1]), optional: !r.is(e, "_[_]", 2)}
		if s.name == "" {
			s.key = r.resolved(args[1])
		}
		return s, args[0]
	}
	return step{}, nil
}

// resolved reads a value that is the key of an attribute or an operand of ?:. Of an
// attribute there cel-go counts the steps only.
func (r *reader) resolved(e ast.Expr) valueOf {
	if c, attribute := r.chain(e); attribute {
		return c.value(false)
	}
	return r.value(e)
}

// isOptional reports whether a value is an optional.
func (r *reader) isOptional(e ast.Expr) bool {
	t := r.checked.GetType(e.ID())
	return t.Kind() == types.OpaqueKind && t.TypeName() == types.OptionalType.TypeName()
}

func (c *chain) isOptional() bool {
	return c.optional != nil || slices.ContainsFunc(c.steps, func(s step) bool { return s.optional })
}

func (c *chain) cost(observed bool) int64 {
	if observed {
		return c.own
	}
	return max(c.own-1, 0)
}

// value is a chain without optional steps, nil for any other and for none.
func (c *chain) value(observed bool) valueOf {
	if c == nil || c.isOptional() {
		return nil
	}
	base, steps, own := c.base, c.steps, c.cost(observed)
	if len(steps) == 0 {
		return priced(own, base)
	}
	if slices.ContainsFunc(steps, func(s step) bool { return s.key != nil }) {
		of := c.get(observed)
		return func(f *frame) (any, bool) {
			v, has, ok := of(f)
			return v, ok && has
		}
	}
	cost := own + int64(len(steps))
	return func(f *frame) (any, bool) {
		v, ok := base(f)
		if !ok {
			return nil, false
		}
		for i := range steps {
			m, isMap := v.(map[string]any)
			if !isMap {
				made, _ := v.(madeMap)
				m = made
			}
			if v, ok = m[steps[i].name]; !ok {
				return nil, false
			}
		}
		f.cost += cost
		return v, true
	}
}

// get is any chain. Where it is not optional a value that is missing is none too.
func (c *chain) get(observed bool) optionalOf {
	base, isOptional, own := c.optional, c.optional != nil, c.cost(observed)
	if base == nil {
		base = certain(c.base)
	}
	return func(f *frame) (any, bool, bool) {
		f.cost += own
		v, has, ok := base(f)
		if !ok || !has {
			return nil, false, ok
		}
		optional := isOptional
		for i := range c.steps {
			s := &c.steps[i]
			optional = optional || s.optional
			if s.key == nil {
				v, has, ok = named(v, s.name)
			} else {
				var k any
				if k, ok = s.key(f); ok {
					v, has, ok = member(v, k)
				}
			}
			if !ok || !has {
				return nil, false, ok && optional
			}
			f.cost++
		}
		return v, true, true
	}
}

// isVariables reports whether e is the record of the policy's variables.
func (r *reader) isVariables(e ast.Expr) bool {
	return isName(e, variablesName) && r.variable(variablesName) == nil
}

// defined reads a variable of the policy.
func (r *reader) defined(name string) valueOf {
	i, ok := r.scope.byName[name]
	if !ok || strings.Contains(name, "__") || !r.scope.variables[i].program.quick.known() {
		return nil
	}
	return func(f *frame) (any, bool) { return f.act.plain(i) }
}

// name reads an identifier, which costs nothing here.
func (r *reader) name(name string) valueOf {
	if v := r.variable(name); v != nil {
		if v.hidden {
			return nil
		}
		slot := v.slot
		if init := v.init; init != nil {
			return func(f *frame) (any, bool) {
				v := f.loops[slot]
				if _, waits := v.(unbound); !waits {
					return v, true
				}
				v, ok := init(f)
				f.loops[slot] = v
				return v, ok && !isEmpty(v)
			}
		}
		return func(f *frame) (any, bool) { return f.loops[slot], true }
	}
	if !r.metered {
		name = strings.TrimPrefix(name, ".")
	}
	// With a dot, nobody observes the steps that follow inside a loop: cel-go knows
	// what they cost.
	switch name {
	case objectName:
		return func(f *frame) (any, bool) { return orNull(f.in.Object), true }
	case oldObjectName:
		return func(f *frame) (any, bool) { return orNull(f.in.OldObject), true }
	case paramsName:
		return func(f *frame) (any, bool) { return orNull(f.in.Params), true }
	case namespaceName:
		return func(f *frame) (any, bool) { return orNull(f.in.Namespace), true }
	case requestName:
		return func(f *frame) (any, bool) { return f.act.ResolveName(requestName) }
	}
	return nil
}

// has reads a presence test, whose attribute costs its steps only.
func (r *reader) has(s ast.SelectExpr) boolOf {
	operand, name := s.Operand(), s.FieldName()
	if r.isVariables(operand) {
		of := r.defined(name)
		if of == nil {
			return nil
		}
		return func(f *frame) (bool, bool) {
			f.cost++
			_, ok := of(f)
			return true, ok
		}
	}
	var of valueOf
	switch c, attribute := r.chain(operand); {
	case r.is(operand, "_?_:_", 3) || r.isOptional(operand):
	case !attribute:
		of = r.value(operand)
	case c != nil && c.own > 0:
		of = c.value(false)
	}
	if of == nil {
		return nil
	}
	return func(f *frame) (bool, bool) {
		v, ok := of(f)
		if !ok {
			return false, false
		}
		f.cost++
		_, has, ok := named(v, name)
		return has, ok
	}
}

// named finds what a map has under a name.
func named(of any, name string) (value any, has, ok bool) {
	m, isMap := mapOf(of)
	value, has = m[name]
	return value, has, isMap
}

// member finds what a map has under a name, or a list at an index.
func member(of, key any) (value any, has, ok bool) {
	switch key := key.(type) {
	case string:
		return named(of, key)
	case int64:
		list, isList := listOf(of)
		if isList && key >= 0 && key < int64(len(list)) {
			return list[key], true, true
		}
		return nil, false, isList
	}
	return nil, false, false
}

// reading is how a part of an expression is read and what becomes of its value.
type reading struct {
	read func(ast.Expr) valueOf
	// convert is for what read did not read, if it is not nil.
	convert func(any) (any, bool)
}

// anOptional reads a value that is an optional.
func (r *reader) anOptional(e ast.Expr) optionalOf {
	return r.optional(e, true, reading{read: r.value})
}

func (r *reader) optional(e ast.Expr, observed bool, as reading) optionalOf {
	if c, attribute := r.chain(e); attribute {
		if c == nil || !c.isOptional() {
			return nil
		}
		return as.converted(c.get(observed))
	}
	if e.Kind() != ast.CallKind {
		return nil
	}
	args := operandsOf(e)
	switch {
	case r.is(e, "optional.none", 0):
		return func(f *frame) (any, bool, bool) {
			f.cost++
			return nil, false, true
		}
	case r.is(e, "optional.of", 1):
		return certain(priced(1, as.read(args[0])))
	case r.is(e, "or", 2) && r.isOptional(e):
		first, second := r.optional(args[0], true, as), r.optional(args[1], true, as)
		if first == nil || second == nil {
			return nil
		}
		return func(f *frame) (any, bool, bool) {
			if v, has, ok := first(f); !ok || has {
				return v, has, ok
			}
			return second(f)
		}
	case r.is(e, "_?_:_", 3):
		condition, then, otherwise := r.boolean(args[0]), r.optional(args[1], false, as), r.optional(args[2], false, as)
		if condition == nil || then == nil || otherwise == nil {
			return nil
		}
		return func(f *frame) (any, bool, bool) {
			switch v, ok := condition(f); {
			case !ok:
				return nil, false, false
			case v:
				return then(f)
			default:
				return otherwise(f)
			}
		}
	}
	return nil
}

func (as reading) converted(of optionalOf) optionalOf {
	if as.convert == nil {
		return of
	}
	return func(f *frame) (any, bool, bool) {
		v, has, ok := of(f)
		if ok && has {
			if !f.weigh(v) {
				return nil, false, false
			}
			v, ok = as.convert(v)
		}
		return v, has, ok
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

func literalText(e ast.Expr) string {
	if e.Kind() != ast.LiteralKind {
		return ""
	}
	s, _ := e.AsLiteral().(types.String)
	return string(s)
}
