package engine

import (
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/policy"
)

// brokenErrors returns the errors that a server reports for a stored policy that no longer
// compiles. A server compiles each mutation when it runs, so every wrong expression is an error
// of its own. An error of a variable is reported for the expressions that read it
// (k8s.io/apiserver …/cel/composition.go), and a wrong condition keeps the mutations from
// running (…/cel/condition.go). Unlike a server, mapd neither evaluates the other conditions of
// the policy nor runs its other mutations.
func brokenErrors(p *policy.Policy) []error {
	obj := p.Object()
	variables := map[string]error{} // by name, until the error of an expression includes it
	var own, conditions, out []error
	for _, e := range p.Errs() {
		var f *api.Fault
		if !errors.As(e, &f) || f.Phase != api.Compiling {
			out = append(out, e)
			continue
		}
		switch f.Part {
		case api.MatchConditions:
			conditions = append(conditions, fmt.Errorf("compilation error: %w", f.Err))
		case api.Variables:
			variables[obj.Spec.Variables[f.Index].Name] = f.Err
			own = append(own, f.Err)
		default:
			out = append(out, consequence(f, obj.Spec.Variables, variables))
		}
	}
	switch {
	case len(conditions) > 0:
		return []error{utilerrors.NewAggregate(conditions)}
	case len(out) == 0:
		return own
	}
	return out
}

// consequence returns the error of a mutation that does not compile. If the mutation reads a
// variable that does not compile either, it is the error of that variable.
func consequence(f *api.Fault, declared []admissionregistrationv1.Variable, broken map[string]error) error {
	for _, v := range declared {
		if cause := broken[v.Name]; cause != nil && slices.Contains(f.Undefined, v.Name) {
			return fmt.Errorf("expression '%s' resulted in error: composited variable %q fails to compile: %w", f.Expression, v.Name, cause)
		}
	}
	return f.Err
}
