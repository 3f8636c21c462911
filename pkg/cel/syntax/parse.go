package syntax

import (
	"context"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/parser"

	"github.com/mapd-project/mapd/pkg/api"
)

// parseWritten parses an expression without expanding macros, so that the tree has the written
// form.
func parseWritten(expression string) (*ast.AST, error) {
	return parseWrittenWithin(context.Background(), expression)
}

// parseWrittenWithin is parseWritten that stops when ctx ends.
func parseWrittenWithin(ctx context.Context, expression string) (_ *ast.AST, err error) {
	text, err := Text(ctx, expression)
	if err != nil {
		return nil, NewError(expression, err.Error())
	}
	p, err := parser.NewParser(parser.EnableOptionalSyntax(true), parser.EnableIdentEscapeSyntax(true))
	if err != nil {
		return nil, err
	}
	defer Stopped(&err)
	parsed, errs := p.Parse(text)
	if all := errs.GetErrors(); len(all) > 0 {
		failure := &Error{Expr: expression, Text: all[0].Message}
		for _, e := range all {
			failure.Issues = append(failure.Issues, api.Issue{Line: max(e.Location.Line(), 1), Column: e.Location.Column() + 1, Message: e.Message})
		}
		return nil, failure
	}
	return parsed, nil
}

// Strings returns the string literals of an expression, each once, in their order.
func Strings(expression string) ([]string, error) {
	parsed, err := parseWritten(expression)
	if err != nil {
		return nil, err
	}
	var out []string
	ast.PostOrderVisit(parsed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.LiteralKind {
			return
		}
		if s, ok := e.AsLiteral().(types.String); ok && !slices.Contains(out, string(s)) {
			out = append(out, string(s))
		}
	}))
	return out, nil
}
