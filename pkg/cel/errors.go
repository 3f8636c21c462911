package cel

import (
	"errors"

	celgo "github.com/google/cel-go/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
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

// errNoVariables is the error of Define in a scope without Vars.Variables.
var errNoVariables = errors.New("this scope declares no variables")

// CompileError says why an expression does not compile.
type CompileError = syntax.Error

// issuesError is the error for what cel-go's parser or checker found.
func issuesError(expr string, issues *celgo.Issues) *CompileError {
	e := &CompileError{Expr: expr, Text: "compilation failed: " + issues.String()}
	for _, issue := range issues.Errors() {
		e.Issues = append(e.Issues, api.Issue{
			Line:    max(issue.Location.Line(), 1),
			Column:  max(issue.Location.Column()+1, 1),
			Message: issue.Message,
		})
	}
	return e
}
