package policy

import (
	"context"
	"errors"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/mapd-project/mapd/pkg/cel"
)

// condition is one match condition, compiled.
type condition struct {
	name    string
	program *cel.Program
}

// Matches evaluates the policy's match conditions on the current object.
//
// All of them are evaluated, under one budget: the first false one decides,
// and only if there is none do errors count (spec §4.1;
// k8s.io/apiserver …/webhook/matchconditions/matcher.go: Match). Running out of
// budget is an error even after a false condition. Errors come joined as one,
// without the failure policy applied.
//
// Conditions see no namespaceObject, and request.resource is the request's own
// even if the policy matched another version of it (spec §4.2).
func (p *Policy) Matches(ctx context.Context, in Input) (Match, error) {
	if p.err != nil {
		return Match{}, p.err
	}
	if len(p.conditions) == 0 {
		return Match{OK: true}, nil
	}
	in.Namespace = nil
	_, in.Resource, _ = in.Request.client()
	buffers := &in.draft().buffers
	buffers.budget.Remaining = cel.ConditionBudget
	if in.Cost != nil {
		defer func() { *in.Cost += spent(cel.ConditionBudget, &buffers.budget) }()
	}
	activation := p.conditionScope.Rebind(&buffers.values, in.celInput(&buffers.vars), &buffers.budget)

	match := Match{OK: true}
	var errs []error
	for i := range p.conditions {
		c := &p.conditions[i]
		ok, err := c.program.Bool(ctx, activation)
		switch {
		case errors.Is(err, cel.ErrBudget):
			return Match{}, err
		case err != nil:
			errs = append(errs, err)
		case !ok && match.OK:
			match = Match{Condition: c.name}
		}
	}
	if match.OK && len(errs) > 0 {
		return Match{}, utilerrors.NewAggregate(errs)
	}
	return match, nil
}
