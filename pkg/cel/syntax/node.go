package syntax

import (
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// Node is a node of the syntax tree of a checked expression with expanded macros, for tools
// that analyse an expression without evaluating it.
type Node struct {
	Kind NodeKind
	// Name is the name of an identifier, of a selected field, of a function, or of the type of
	// an object literal.
	Name string
	// Args are the operand of a Select; the arguments of a Call, after the target of a member
	// function; the elements of a List; the values of an Object; the keys and values of a Map,
	// alternating; of a Loop the range, the initial accumulator, the condition, the step and
	// the result.
	Args []*Node
	// Names are the names of an Object's fields, or of a Loop's variables: the accumulator, the
	// element, and perhaps a second one.
	Names []string
	// Value is that of a Literal: string, int64, uint64, float64, bool, []byte or nil.
	Value any
	// Test says that a Select is the macro has; Member says that a Call has a target.
	Test, Member bool
	// Line and Column are the 1-based position of the node's beginning, and Offset is the
	// number of code points before it; columns count code points.
	Line, Column, Offset int
}

// NodeKind is the kind of a Node.
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

// Of returns the syntax tree of a checked expression.
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

// place sets the position of a node. The parser records the operator of a call or a selection,
// and the first operand may be before it.
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

// Walk calls visit with a node and, if it returns true, with the nodes below.
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
