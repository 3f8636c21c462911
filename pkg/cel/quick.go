package cel

import (
	"regexp"
	"strings"

	"github.com/google/cel-go/common/ast"

	"github.com/mapd-project/mapd/pkg/cel/quick"
)

// quick returns the program of package quick for an expression, nil if there is none.
func (s *Scope) quick(checked *ast.AST, want Want) *quick.Program {
	options := quick.Options{
		Metered:   !s.vars.Unmetered,
		Variable:  want == anything,
		Roots:     roots,
		Variables: variablesName,
		Defined: func(name string) (int, bool) {
			i, ok := s.byName[name]
			return i, ok && !strings.Contains(name, "__") && s.variables[i].program.quick != nil
		},
		Data:   dataLeaf,
		Fields: structLeaf,
		Pattern: func(text string) (*regexp.Regexp, int64) {
			p := (*Activation)(nil).compile(text)
			return p.regex, p.instructions
		},
		Weigh: func(v any, left int64) (int64, bool) {
			s := scale{left: left}
			ok := s.data(v)
			return s.left, ok
		},
	}
	if want == TypedPatch {
		options.Data = typedLeaf
	}
	return quick.Compile(checked, options)
}

var roots = map[string]quick.Root{
	objectName: quick.Object, oldObjectName: quick.OldObject, requestName: quick.Request,
	paramsName: quick.Params, namespaceName: quick.Namespace,
}

var _ quick.Host = (*Activation)(nil)

// IsQuick reports whether package quick can evaluate the expression.
func (p *Program) IsQuick() bool { return p.quick != nil }

// Quick returns how many expressions were evaluated without cel-go since a was bound.
// Variables are not counted.
func (a *Activation) Quick() int { return a.quick }

// mayTry reports whether the quick evaluator may be tried.
func (p *Program) mayTry(a *Activation) bool {
	return p.quick != nil && a.stop == nil && a.ctx.Err() == nil
}

// quickly evaluates p without cel-go. It returns nil if cel-go has to evaluate p: then only the
// memory that was used stays counted.
func (p *Program) quickly(a *Activation) *quick.Result {
	if !p.mayTry(a) {
		return nil
	}
	touched, spent := len(a.touched), a.spent
	r, ok := p.quick.Run(a, &a.frames)
	switch p.want {
	case Object:
		ok = ok && a.weighs(r.Value)
	case JSONPatch, TypedPatch:
		ok = ok && a.weighsOps(r.Ops)
	}
	if a.stop == nil && r.Made >= chargeStep {
		a.stop = a.count(int64(r.Made))
	}
	if ok && a.stop == nil {
		if p.want != anything {
			a.quick++
		}
		return r
	}
	// cel-go may read other variables than quick did, so their costs are counted anew.
	for _, i := range a.touched[touched:] {
		a.memos[i] = memo{slow: a.memos[i].slow}
	}
	a.touched, a.spent = a.touched[:touched], spent
	return nil
}

// Root implements quick.Host.
func (a *Activation) Root(root quick.Root) any {
	switch root {
	case quick.Object:
		return orNull(a.in.Object)
	case quick.OldObject:
		return orNull(a.in.OldObject)
	case quick.Params:
		return orNull(a.in.Params)
	case quick.Namespace:
		return orNull(a.in.Namespace)
	}
	if !a.hasRequest {
		a.hasRequest = true
		if a.in.Request != nil {
			a.request = a.in.Request()
		}
	}
	return orNull(a.request)
}

// Work implements quick.Host.
func (a *Activation) Work(units int64) bool {
	a.work += units
	if err := a.yield(); err != nil {
		a.stop = err
		return false
	}
	return true
}
