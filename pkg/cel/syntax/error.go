package syntax

import (
	"strings"

	"github.com/mapd-project/mapd/pkg/api"
)

// Error says why an expression does not compile. Text is the text of an API server; Issues and
// Render are for tools that know the position of the expression in a file.
type Error struct {
	Expr   string
	Issues []api.Issue
	// Internal says that the expression is well-formed and typed, but no program
	// could be made of it: a constant call such as int("x") failed. A server
	// calls this an internal error of the field, not an invalid value
	// (k8s.io/apiserver …/plugin/cel/compile.go).
	Internal bool
	// Undefined are the variables that the expression reads and that its Scope
	// does not define.
	Undefined []string
	Text      string
}

// Locate implements api.LocatedError.
func (e *Error) Locate() (issues []api.Issue, undefined []string) {
	return e.Issues, e.Undefined
}

func (e *Error) Error() string { return e.Text }

// Render returns the issues with the offending line of the expression under
// each, and a caret under the offending column:
//
//	1:8: undefined field 'b'
//	 | variables.b
//	 |          ^
func (e *Error) Render() string {
	texts := make([]string, len(e.Issues))
	for i, issue := range e.Issues {
		texts[i] = issue.Render(e.Expr)
	}
	return strings.Join(texts, "\n")
}

// NewError returns the error for an expression that is wrong as a whole.
func NewError(expr, text string) *Error {
	return &Error{Expr: expr, Issues: []api.Issue{{Line: 1, Column: 1, Message: text}}, Text: text}
}
