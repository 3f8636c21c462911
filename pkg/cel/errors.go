package cel

import (
	"errors"
	"strconv"
	"strings"

	celgo "github.com/google/cel-go/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/mapd-project/mapd/pkg/api"
)

// ErrBudget is returned when an expression, with the variables that it
// touched, cost more than was left of its [Budget]. It is errors.Is equal to
// k8s.io/apiserver's ErrOutOfBudget.
var ErrBudget error = budgetError{}

type budgetError struct{}

func (budgetError) Error() string {
	return "validation failed due to running out of cost budget, no further validation rules will be run"
}

func (budgetError) Unwrap() error { return apiservercel.ErrOutOfBudget }

// errNoVariables is for callers that mix up their scopes.
var errNoVariables = errors.New("this scope declares no variables")

// CompileError says why an expression does not compile. Error is the text that
// an API server prints for it; Issues and Render are for tools that know where
// the expression stands.
type CompileError struct {
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
	text      string
}

// Locate implements api.LocatedError.
func (e *CompileError) Locate() (issues []api.Issue, undefined []string) {
	return e.Issues, e.Undefined
}

func (e *CompileError) Error() string { return e.text }

// Render returns the issues with the offending line of the expression under
// each, and a caret under the offending column:
//
//	1:8: undefined field 'b'
//	 | variables.b
//	 |          ^
func (e *CompileError) Render() string {
	lines := strings.Split(e.Expr, "\n")
	var b strings.Builder
	for i, issue := range e.Issues {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(strconv.Itoa(issue.Line) + ":" + strconv.Itoa(issue.Column) + ": " + issue.Message)
		if issue.Line > len(lines) {
			continue
		}
		line := lines[issue.Line-1]
		b.WriteString("\n | " + line + "\n | ")
		column := 1
		for _, r := range line {
			if column == issue.Column {
				break
			}
			// A tab moves the caret as far as it moves the text.
			if r != '\t' {
				r = ' '
			}
			b.WriteRune(r)
			column++
		}
		b.WriteByte('^')
	}
	return b.String()
}

// issuesError is the error for what cel-go's parser or checker found.
func issuesError(expr string, issues *celgo.Issues) *CompileError {
	e := &CompileError{Expr: expr, text: "compilation failed: " + issues.String()}
	for _, issue := range issues.Errors() {
		e.Issues = append(e.Issues, api.Issue{
			Line:    max(issue.Location.Line(), 1),
			Column:  max(issue.Location.Column()+1, 1),
			Message: issue.Message,
		})
	}
	return e
}

// wholeError is the error for an expression that is wrong as a whole.
func wholeError(expr, text string) *CompileError {
	return &CompileError{Expr: expr, Issues: []api.Issue{{Line: 1, Column: 1, Message: text}}, text: text}
}
