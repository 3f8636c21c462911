package syntax

import (
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Part is an operand of an expression. Optional says that an element, an entry or a field has a
// question mark before it.
type Part struct {
	ast.Expr
	Optional bool
}

// Parts returns the operands of an expression: the operand of a selection; the target of a call
// and its arguments; the elements of a list; the keys and values of a map, alternating; the
// values of an object; of a loop the range, the initial accumulator, the condition, the step
// and the result.
func Parts(e ast.Expr) (out []Part) {
	add := func(list ...ast.Expr) {
		for _, e := range list {
			out = append(out, Part{e, false})
		}
	}
	switch e.Kind() {
	case ast.SelectKind:
		add(e.AsSelect().Operand())
	case ast.CallKind:
		c := e.AsCall()
		if c.IsMemberFunction() {
			add(c.Target())
		}
		add(c.Args()...)
	case ast.ListKind:
		for i, x := range e.AsList().Elements() {
			out = append(out, Part{x, e.AsList().IsOptional(int32(i))})
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			m := entry.AsMapEntry()
			out = append(out, Part{m.Key(), false}, Part{m.Value(), m.IsOptional()})
		}
	case ast.StructKind:
		for _, entry := range e.AsStruct().Fields() {
			f := entry.AsStructField()
			out = append(out, Part{f.Value(), f.IsOptional()})
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		add(c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result())
	}
	return out
}

// eachChild calls visit with the parts of e, as written, and the variables that are bound
// there.
func eachChild(e ast.Expr, bound []string, visit func(ast.Expr, []string)) {
	all := Parts(e)
	if e.Kind() != ast.CallKind {
		for _, p := range all {
			visit(p.Expr, bound)
		}
		return
	}
	defines, scopes := scopesOf(e.AsCall(), bound)
	args := all[len(all)-len(scopes):]
	if len(args) < len(all) {
		visit(all[0].Expr, bound)
	}
	for i := defines; i < len(args); i++ {
		visit(args[i].Expr, scopes[i])
	}
}

// scopesOf returns how many of the first arguments of a call are names of variables that it
// binds, as macros do, and which variables are bound in each argument.
func scopesOf(c ast.CallExpr, bound []string) (defines int, scopes [][]string) {
	args := c.Args()
	scopes = make([][]string, len(args))
	outside := 0
	if c.IsMemberFunction() {
		defines, outside = binders(c)
	}
	inner := bound
	for _, a := range args[:defines] {
		inner = append(slices.Clone(inner), a.AsIdent())
	}
	for i := range scopes {
		scopes[i] = inner
		if i < outside {
			scopes[i] = bound
		}
	}
	return defines, scopes
}

// binders returns how many of a macro's first arguments are names of variables, and the
// index of the first argument after them in which these are defined.
func binders(c ast.CallExpr) (defines, from int) {
	n := len(c.Args())
	switch c.FunctionName() {
	case "all", "exists", "exists_one", "existsOne":
		defines = n - 1
	case "map":
		defines = min(n-1, 1)
	case "filter", "optMap", "optFlatMap", "sortBy":
		defines = 1
	case "transformList", "transformMap", "transformMapEntry":
		defines = 2
	case "bind":
		if t := c.Target(); n == 3 && t.Kind() == ast.IdentKind && t.AsIdent() == "cel" && c.Args()[0].Kind() == ast.IdentKind {
			return 1, 2
		}
	}
	if defines >= n {
		return 0, 0
	}
	for _, a := range c.Args()[:max(defines, 0)] {
		if a.Kind() != ast.IdentKind {
			return 0, 0 // no macro
		}
	}
	return max(defines, 0), defines
}

// chain returns the identifier at the root of a chain of selected fields, and the names of
// these fields.
func chain(e ast.Expr) (root ast.Expr, path []string, ok bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return e, nil, true
	case ast.SelectKind:
		s := e.AsSelect()
		root, path, ok = chain(s.Operand())
		return root, append(path, s.FieldName()), ok
	case ast.CallKind:
		operand, name, named := selected(e)
		if !named {
			return nil, nil, false
		}
		root, path, ok = chain(operand)
		return root, append(path, name), ok
	}
	return nil, nil, false
}

// selected returns the operand and the field of a["x"], a[?"x"] and a.?x.
func selected(e ast.Expr) (operand ast.Expr, name string, ok bool) {
	c := e.AsCall()
	switch c.FunctionName() {
	case operators.Index, operators.OptIndex, operators.OptSelect:
		name, ok = text(c.Args()[1])
		return c.Args()[0], name, ok
	}
	return nil, "", false
}

func text(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	s, ok := e.AsLiteral().(types.String)
	return string(s), ok
}
