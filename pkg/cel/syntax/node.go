package syntax

import (
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// Node is a part of a checked expression, its macros expanded, for those who ask
// what an expression says rather than what its value is.
type Node struct {
	Kind NodeKind
	// Name is that of an identifier, of a selected field, of a function, or of the
	// type of an object literal.
	Name string
	// Args are the operand of a Select; those of a Call, the target of a member
	// function first; the elements of a List; the values of an Object; keys and values of
	// a Map by turns; of a Loop the range, the first result, the condition, the step and
	// the result.
	Args []*Node
	// Names are those of an Object's fields, or of a Loop's variables: of what is
	// gathered, of the element, and perhaps of a second one.
	Names []string
	// Value is that of a Literal: string, int64, uint64, float64, bool, []byte or nil.
	Value any
	// Test says of a Select that it is the macro has, Member of a Call that it has a target.
	Test, Member bool
	// Line and Column are where the part begins, 1-based, and Offset is how many code
	// points come before it; columns count code points.
	Line, Column, Offset int
}

// NodeKind tells nodes apart.
type NodeKind uint8

// The kinds of nodes.
const (
	Ident NodeKind = iota
	Literal
	Select
	Call
	List
	Map
	Struct
	Loop
)

// Of returns the syntax of a checked expression.
func Of(checked *ast.AST) *Node {
	t := translator{info: checked.SourceInfo()}
	return t.node(checked.Expr())
}

type translator struct{ info *ast.SourceInfo }

func (t *translator) node(e ast.Expr) *Node {
	n := &Node{Offset: -1}
	switch e.Kind() {
	case ast.IdentKind:
		n.Kind, n.Name = Ident, IdentName(e)
	case ast.LiteralKind:
		n.Kind = Literal
		if e.AsLiteral() != types.NullValue {
			n.Value = e.AsLiteral().Value()
		}
	case ast.SelectKind:
		s := e.AsSelect()
		n.Kind, n.Name, n.Test = Select, s.FieldName(), s.IsTestOnly()
	case ast.CallKind:
		c := e.AsCall()
		n.Kind, n.Name, n.Member = Call, c.FunctionName(), c.IsMemberFunction()
	case ast.ListKind:
		n.Kind = List
	case ast.MapKind:
		n.Kind = Map
	case ast.StructKind:
		n.Kind, n.Name = Struct, e.AsStruct().TypeName()
		for _, f := range e.AsStruct().Fields() {
			n.Names = append(n.Names, f.AsStructField().Name())
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		n.Kind, n.Names = Loop, []string{c.AccuVar(), c.IterVar()}
		if c.HasIterVar2() {
			n.Names = append(n.Names, c.IterVar2())
		}
	}
	for _, p := range Parts(e) {
		n.Args = append(n.Args, t.node(p.Expr))
	}
	t.place(n, e)
	return n
}

// place notes where a node begins. The parser notes the operator of a call or a
// selection, which its first operand may stand before.
func (t *translator) place(n *Node, e ast.Expr) {
	if r, ok := t.info.GetOffsetRange(e.ID()); ok {
		at := t.info.GetLocationByOffset(r.Start)
		n.Offset, n.Line, n.Column = int(r.Start), at.Line(), at.Column()+1
	}
	for _, a := range n.Args {
		if a.Offset >= 0 && (n.Offset < 0 || a.Offset < n.Offset) {
			n.Offset, n.Line, n.Column = a.Offset, a.Line, a.Column
		}
	}
}

// Walk calls visit with a node and, as long as it returns true, with what is below it.
func (n *Node) Walk(visit func(*Node) bool) {
	if visit(n) {
		for _, a := range n.Args {
			a.Walk(visit)
		}
	}
}

// IdentName returns the name of an identifier without the dot with which
// `.object` reaches past a loop variable.
func IdentName(e ast.Expr) string {
	return strings.TrimPrefix(e.AsIdent(), ".")
}
