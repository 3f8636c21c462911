package cel

import (
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// The budgets of spec §6.7.
const (
	// MutationBudget is for one mutation expression with its variables.
	MutationBudget = celconfig.RuntimeCELCostBudget
	// ConditionBudget is for all match conditions of an invocation together.
	ConditionBudget = celconfig.RuntimeCELCostBudgetMatchConditions
)

// Budget is what evaluations may still cost. When it is exceeded Remaining
// becomes -1, and every further evaluation with this budget fails.
type Budget struct {
	Remaining int64
}

// charge takes a cost off the budget. No budget is no limit.
func (b *Budget) charge(cost int64) error {
	if b == nil {
		return nil
	}
	if cost > b.Remaining {
		b.Remaining = -1
		return ErrBudget
	}
	b.Remaining -= cost
	return nil
}
