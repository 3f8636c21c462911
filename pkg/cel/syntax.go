package cel

import (
	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// Anything is for the expressions of variables.
const Anything = anything

// Syntax parses and checks an expression as Compile does, and returns its syntax tree. Its
// errors are those of Compile.
func (s *Scope) Syntax(expr string, want Want) (_ *syntax.Node, err error) {
	if s.compiling.ctx.Err() != nil {
		return nil, syntax.Interrupted(s.compiling.ctx)
	}
	defer func() {
		// As in compileAnew.
		if r := recover(); r != nil {
			err = syntax.NewError(expr, "internal error")
		}
	}()
	giveBack, err := acquireNodes(s.compiling.ctx, expr)
	if err != nil {
		return nil, err
	}
	defer giveBack()
	_, checked, _, err := s.check(expr, want)
	if err != nil {
		return nil, err
	}
	return syntax.Of(checked), nil
}

// Fields returns the fields that the result of an Object expression may have. It parses the
// expression again, since a program does not keep its syntax tree.
func (p *Program) Fields() []syntax.Field {
	if p.want != Object {
		return nil
	}
	scope := *p.scope
	scope.compiling = alone()
	giveBack, err := acquireNodes(scope.compiling.ctx, p.expr)
	if err != nil {
		return nil
	}
	defer giveBack()
	_, checked, _, err := scope.check(p.expr, p.want)
	if err != nil {
		// This cannot fail: the expression compiled before.
		return nil
	}
	return syntax.Fields(checked, p.expr)
}
