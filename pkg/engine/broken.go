package engine

import (
	"errors"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/mapd-project/mapd/pkg/policy"
)

// brokenErrors returns what a server reports of a stored policy that no longer
// compiles. It finds out mutation by mutation while it runs, so every expression
// at fault is an error of its own; a variable is at fault in the expressions that
// read it (k8s.io/apiserver …/cel/composition.go), and a condition keeps the
// policy from its mutations (…/cel/condition.go). Unlike a server we neither ask
// the policy's other conditions nor run its other mutations.
func brokenErrors(p *policy.Policy) []error {
	obj := p.Object()
	variables := map[string]error{} // by name, until an expression tells of it
	var own, conditions, out []error
	for _, e := range p.Errs() {
		var at *policy.ExpressionError
		if !errors.As(e, &at) {
			out = append(out, e)
			continue
		}
		if _, ok := fieldIndex(at.Field, "spec.matchConditions[%d]"); ok {
			conditions = append(conditions, fmt.Errorf("compilation error: %w", at.Err))
			continue
		}
		if i, ok := fieldIndex(at.Field, "spec.variables[%d]"); ok && i < len(obj.Spec.Variables) {
			variables[obj.Spec.Variables[i].Name] = at.Err
			own = append(own, at.Err)
			continue
		}
		if i, ok := fieldIndex(at.Field, "spec.mutations[%d]"); ok && i < len(obj.Spec.Mutations) {
			out = append(out, consequence(expressionOf(&obj.Spec.Mutations[i]), at.Err, obj.Spec.Variables, variables))
			continue
		}
		out = append(out, at.Err)
	}
	switch {
	case len(conditions) > 0:
		return []error{utilerrors.NewAggregate(conditions)}
	case len(out) == 0:
		return own
	}
	return out
}

// consequence blames a variable for a mutation that does not compile because the
// variable does not.
func consequence(expr string, err error, declared []admissionregistrationv1.Variable, broken map[string]error) error {
	for _, v := range declared {
		if cause := broken[v.Name]; cause != nil && strings.Contains(err.Error(), "undefined field '"+v.Name+"'") {
			return fmt.Errorf("expression '%s' resulted in error: composited variable %q fails to compile: %w", expr, v.Name, cause)
		}
	}
	return err
}

func expressionOf(m *admissionregistrationv1.Mutation) string {
	switch {
	case m.JSONPatch != nil:
		return m.JSONPatch.Expression
	case m.ApplyConfiguration != nil:
		return m.ApplyConfiguration.Expression
	default:
		return ""
	}
}

// fieldIndex reads the index in the path of a list's element.
func fieldIndex(field, format string) (int, bool) {
	var i int
	n, _ := fmt.Sscanf(field, format, &i)
	return i, n == 1
}
