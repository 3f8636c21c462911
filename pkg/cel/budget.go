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

// Budget is the cost that is left for evaluations. When it is exceeded, Remaining becomes -1,
// and every further evaluation with this budget fails.
type Budget struct {
	Remaining int64
}

// charge subtracts a cost from the budget. A nil Budget is unlimited.
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
