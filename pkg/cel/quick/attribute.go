package quick

import (
	"slices"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// attribute is an attribute in cel-go's sense: a.b.?c[d]. It costs 1 for the name and 1 for
// each step that finds something.
type attribute struct {
	base  part
	steps []step
	// optional says that the base is an optional.
	optional bool
	// own is the cost of the attribute without its steps if its value is observed: 1 more than
	// if it is not, except for the attribute of a ?:.
	own int64
}

// step has a name, or a key that computes one.
type step struct {
	name     any
	key      part
	optional bool
}

// attribute reads an attribute. is says that e is an attribute, even if it is not supported:
// then the caller must not try other readers, which would take twice the time at each step into
// it.
func (r *reader) attribute(e ast.Expr) (_ *attribute, is bool) {
	var steps []step
	for {
		s, of := r.step(e)
		if of == nil {
			break
		}
		if s.name == nil && s.key == nil {
			return nil, true
		}
		steps, e = append(steps, s), of
	}
	slices.Reverse(steps)
	a := &attribute{steps: steps, own: 1}
	switch {
	case r.isVariables(e):
		if len(steps) == 0 || steps[0].optional {
			return nil, true
		}
		a.base, a.steps = r.defined(steps[0].name), steps[1:]
		a.own++
	case e.Kind() == ast.IdentKind:
		a.base = r.name(e.AsIdent())
	case len(steps) == 0:
		return nil, false
	case r.calls(e, operators.Conditional):
		a.base = r.value(e)
		a.own = 0
	case r.isOptional(e):
		a.base, a.optional = r.optional(e, data, true), true
	default:
		a.base = r.value(e)
	}
	if a.base == nil {
		return nil, true
	}
	return a, true
}

// step reads the last step of an attribute and returns its operand.
func (r *reader) step(e ast.Expr) (step, ast.Expr) {
	if e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly() && r.checked.ReferenceMap()[e.ID()] == nil {
		return step{name: e.AsSelect().FieldName()}, e.AsSelect().Operand()
	}
	fn, c := r.call(e, data)
	if fn == nil || fn.step == 0 {
		return step{}, nil
	}
	s := step{optional: fn.step == optionalStep}
	if name := literalText(c.args[1]); name != "" {
		s.name = name
	} else {
		s.key = r.read(c.args[1], data, false)
	}
	return s, c.args[0]
}

// isOptional reports whether a value is an optional.
func (r *reader) isOptional(e ast.Expr) bool {
	t := r.checked.GetType(e.ID())
	return t.Kind() == types.OpaqueKind && t.TypeName() == types.OptionalType.TypeName()
}

func (a *attribute) isOptional() bool {
	return a.optional || slices.ContainsFunc(a.steps, func(s step) bool { return s.optional })
}

// value returns the part for an attribute without optional steps, nil for an attribute that has
// some and for a nil one.
func (a *attribute) value(observed bool) part {
	if a == nil || a.isOptional() {
		return nil
	}
	base, cost := a.base, a.own+int64(len(a.steps))
	if !observed && a.own > 0 {
		cost--
	}
	names := make([]string, len(a.steps))
	for i, s := range a.steps {
		var isName bool
		if names[i], isName = s.name.(string); !isName {
			return a.get(observed)
		}
	}
	// Most attributes have only names as steps.
	return func(f *frame) (any, bool) {
		v, ok := base(f)
		for _, name := range names {
			m, isMap := v.(map[string]any)
			if !isMap {
				made, _ := v.(Map)
				m = made
			}
			if v, ok = m[name]; !ok {
				return nil, false
			}
		}
		f.Cost += cost
		return v, ok
	}
}

// get returns the part for any attribute. If a step finds nothing, the part declines, unless
// that step or one before it is optional.
func (a *attribute) get(observed bool) part {
	base, steps, own, isOptional := a.base, a.steps, a.own, a.optional
	if !observed {
		own = max(own-1, 0)
	}
	return func(f *frame) (any, bool) {
		f.Cost += own
		v, ok := base(f)
		if _, empty := v.(none); empty || !ok {
			return v, ok
		}
		optional := isOptional
		for i := range steps {
			s := &steps[i]
			optional = optional || s.optional
			k := s.name
			if s.key != nil {
				if k, ok = s.key(f); !ok {
					return nil, false
				}
			}
			var has bool
			if v, has, ok = member(v, k); !ok || !has {
				return none{}, ok && optional
			}
			f.Cost++
		}
		return v, true
	}
}

// isVariables reports whether e is the record of the policy's variables.
func (r *reader) isVariables(e ast.Expr) bool {
	return isName(e, r.Variables) && r.variable(r.Variables) == nil
}

// defined reads a variable of the policy.
func (r *reader) defined(name any) part {
	text, _ := name.(string)
	i, ok := r.Defined(text)
	if !ok {
		return nil
	}
	return func(f *frame) (any, bool) { return f.host.Variable(i) }
}

// name reads an identifier, which costs nothing here.
func (r *reader) name(name string) part {
	if v := r.variable(name); v != nil {
		return v.read
	}
	if !r.Metered {
		name = strings.TrimPrefix(name, ".")
	}
	// The following steps of a name with a leading dot are not observed within a loop: cel-go's
	// cost differs there, so leave it to cel-go.
	root, ok := r.Roots[name]
	if !ok {
		return nil
	}
	return func(f *frame) (any, bool) { return f.host.Root(root), true }
}

// has reads a presence test, whose attribute costs its steps only.
func (r *reader) has(s ast.SelectExpr) part {
	operand, name := s.Operand(), any(s.FieldName())
	if r.isVariables(operand) {
		of := r.defined(name)
		if of == nil {
			return nil
		}
		return func(f *frame) (any, bool) {
			f.Cost++
			_, ok := of(f)
			return true, ok
		}
	}
	var of part
	switch a, is := r.attribute(operand); {
	case r.calls(operand, operators.Conditional) || r.isOptional(operand):
	case !is:
		of = r.value(operand)
	case a != nil && a.own > 0:
		of = a.value(false)
	}
	if of == nil {
		return nil
	}
	return func(f *frame) (any, bool) {
		v, ok := of(f)
		if !ok {
			return nil, false
		}
		f.Cost++
		_, has, ok := member(v, name)
		return has, ok
	}
}

// member returns the value of a map under a name, or of a list at an index.
func member(of, key any) (value any, has, ok bool) {
	switch key := key.(type) {
	case string:
		m, isMap := mapOf(of)
		value, has = m[key]
		return value, has, isMap
	case int64:
		list, isList := listOf(of)
		if isList && key >= 0 && key < int64(len(list)) {
			return list[key], true, true
		}
		return nil, false, isList
	}
	return nil, false, false
}

// optional reads an expression whose value is an optional; its content goes to d.
func (r *reader) optional(e ast.Expr, d dest, observed bool) part {
	if a, is := r.attribute(e); is {
		if a == nil || !a.isOptional() {
			return nil
		}
		return r.converted(a.get(observed), d)
	}
	fn, c := r.call(e, d)
	if fn == nil || !fn.optional {
		return nil
	}
	c.optional = true
	return fn.read(r, c)
}

func isTrue(e ast.Expr) bool {
	return e.Kind() == ast.LiteralKind && e.AsLiteral() == types.True
}

func isName(e ast.Expr, name string) bool {
	return e.Kind() == ast.IdentKind && e.AsIdent() == name
}
