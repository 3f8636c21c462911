package cel

import "github.com/google/cel-go/common/ast"

// part is an operand of an expression. optional says of an element, an entry or a field that
// a question mark stands before it.
type part struct {
	ast.Expr
	optional bool
}

// parts returns the operands of an expression: the operand of a selection; the target of a
// call and its arguments; the elements of a list; keys and values of a map by turns; the values
// of an object; of a loop the range, the first result, the condition, the step and the result.
func parts(e ast.Expr) (out []part) {
	add := func(list ...ast.Expr) {
		for _, e := range list {
			out = append(out, part{e, false})
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
			out = append(out, part{x, e.AsList().IsOptional(int32(i))})
		}
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			m := entry.AsMapEntry()
			out = append(out, part{m.Key(), false}, part{m.Value(), m.IsOptional()})
		}
	case ast.StructKind:
		for _, entry := range e.AsStruct().Fields() {
			f := entry.AsStructField()
			out = append(out, part{f.Value(), f.IsOptional()})
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		add(c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result())
	}
	return out
}
