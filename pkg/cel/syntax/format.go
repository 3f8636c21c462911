package syntax

import (
	"context"
	"errors"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"

	"github.com/mapd-project/mapd/pkg/cel/layout"
)

// Format returns an expression in the layout of package layout: the same words, signs and
// comments on other lines. It parses the result again and checks that the syntax tree is the
// same. The error is a *Error if the expression cannot be parsed. Names and types are not
// checked.
func Format(ctx context.Context, expression string) (string, error) {
	before, err := parseWrittenWithin(ctx, expression)
	if err != nil {
		return "", err
	}
	text, err := layout.Format(expression)
	if err != nil {
		return "", NewError(expression, "cannot be formatted: "+err.Error())
	}
	after, err := parseWrittenWithin(ctx, text)
	if err != nil && ctx.Err() != nil {
		return "", err
	}
	if ce := (*Error)(nil); errors.As(err, &ce) && len(ce.Issues) > 0 { // it is too long
		return "", NewError(expression, "cannot be formatted: with its new lines and blanks: "+ce.Issues[0].Message)
	}
	if err != nil || !sameSyntax(before.Expr(), after.Expr()) || !sameComments(expression, text) {
		return "", NewError(expression, errFormat.Error())
	}
	return text, nil
}

var errFormat = errors.New("cannot be formatted: the result would not be the same expression")

// sameSyntax reports whether two syntax trees are equal except for positions.
func sameSyntax(a, b ast.Expr) bool {
	if a.Kind() != b.Kind() {
		return false
	}
	same := true
	switch a.Kind() {
	case ast.IdentKind:
		return a.AsIdent() == b.AsIdent()
	case ast.LiteralKind:
		return a.AsLiteral().Type() == b.AsLiteral().Type() && a.AsLiteral().Equal(b.AsLiteral()) == types.True
	case ast.SelectKind:
		x, y := a.AsSelect(), b.AsSelect()
		same = x.FieldName() == y.FieldName() && x.IsTestOnly() == y.IsTestOnly()
	case ast.CallKind:
		x, y := a.AsCall(), b.AsCall()
		same = x.FunctionName() == y.FunctionName() && x.IsMemberFunction() == y.IsMemberFunction()
	case ast.StructKind:
		x, y := a.AsStruct(), b.AsStruct()
		same = x.TypeName() == y.TypeName() && slices.EqualFunc(x.Fields(), y.Fields(), func(x, y ast.EntryExpr) bool {
			return x.AsStructField().Name() == y.AsStructField().Name()
		})
	case ast.ListKind, ast.MapKind:
	default:
		return false // macros are not expanded, so there are no loops
	}
	return same && slices.EqualFunc(Parts(a), Parts(b), func(x, y Part) bool {
		return x.Optional == y.Optional && sameSyntax(x.Expr, y.Expr)
	})
}

func sameComments(a, b string) bool {
	return slices.Equal(layout.Comments(a), layout.Comments(b))
}
