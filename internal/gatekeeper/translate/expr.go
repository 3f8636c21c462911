package translate

import (
	"slices"

	"github.com/mapd-project/mapd/internal/celgen"
)

// The functions of celgen, by short names: the expressions here nest deeply.
type (
	expr  = celgen.Expr
	entry = celgen.Entry
)

var (
	ident, field, optional, has, item = celgen.Ident, celgen.Field, celgen.Optional, celgen.Has, celgen.Item
	cond, all, anyOf, not             = celgen.Cond, celgen.All, celgen.AnyOf, celgen.Not
	equal, among, sum                 = celgen.Equal, celgen.Among, celgen.Sum
	call, fn, macro                   = celgen.Call, celgen.Fn, celgen.Macro
	message, listOf, mapOf, dyn       = celgen.Message, celgen.List, celgen.Map, celgen.Dyn
	quote, isIdentifier, jsonConstant = celgen.Quote, celgen.IsField, celgen.JSON
)

// constant returns nil, a bool, string, int64 or float64, or a list or map of them.
func constant(v any) expr { return celgen.Constant(v) }

// binary returns `a op b` for a relation: ==, !=, in, >=.
func binary(op string, a, b expr) expr { return celgen.Relation(op, a, b) }

// chain joins lists with +. It needs at least one.
func chain(lists ...expr) expr { return celgen.Joined("+", celgen.BindSum, lists...) }

// when guards an expression with conditions; without them the result is none. Before a longer
// expression, the case without effect comes first.
func when(conds []expr, then, none expr) expr {
	if then.Bind > celgen.BindCond || none.Bind == celgen.BindCond {
		return cond(all(conds...), then, none)
	}
	opposites := slices.Clone(conds)
	for i, c := range conds {
		opposites[i] = not(c)
	}
	return cond(anyOf(opposites...), none, then)
}
