package cel

import (
	"math"
	"unicode/utf8"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
)

// What the parts of an expression cost at run time follows cel-go's
// interpreter/runtimecost.go and k8s.io/apiserver's pkg/cel/library/cost.go. Not all
// of it can be seen there:
//   - what is constant, literal lists and maps of constants too, is made before and
//     costs nothing (r.constant);
//   - a.b.c costs one for the name and one for each step, but as an operand of ?: or
//     as a key the name costs nothing, because nobody observes it (r.resolved);
//   - optional steps cost only what they find, presence tests one less;
//   - && || ?: and orValue cost nothing themselves, `in` a constant list neither.

// traversal is the cost of looking at all of a size.
func traversal(size int64) int64 {
	return int64(math.Ceil(float64(size) * common.StringTraversalCostFactor))
}

// sizeCost is the size that cel-go sees in a value: a string's is its code points.
func sizeCost(v any) int64 {
	switch v := v.(type) {
	case string:
		return int64(utf8.RuneCountInString(v))
	case []any:
		return int64(len(v))
	case map[string]any:
		return int64(len(v))
	case madeList:
		return int64(len(v))
	case madeMap:
		return int64(len(v))
	}
	return 1
}

// overload returns the overload that a call is bound to when it is compiled, "" if
// that happens at run time. Costs that depend on sizes are of overloads.
func (r *reader) overload(e ast.Expr) string {
	if ref := r.checked.ReferenceMap()[e.ID()]; ref != nil && len(ref.OverloadIDs) == 1 {
		return ref.OverloadIDs[0]
	}
	return ""
}

// constant reports what cel-go's optimizer takes for a constant.
func (r *reader) constant(e ast.Expr) bool {
	switch e.Kind() {
	case ast.LiteralKind:
		return true
	case ast.IdentKind:
		ref := r.checked.ReferenceMap()[e.ID()]
		return r.variable(e.AsIdent()) == nil && (ref != nil && ref.Value != nil || r.checked.GetType(e.ID()).Kind() == types.TypeKind)
	case ast.ListKind:
		for _, e := range e.AsList().Elements() {
			if !r.constant(e) {
				return false
			}
		}
		return true
	case ast.MapKind:
		for _, e := range e.AsMap().Entries() {
			if entry := e.AsMapEntry(); !r.constant(entry.Key()) || !r.constant(entry.Value()) {
				return false
			}
		}
		return true
	case ast.CallKind:
		if args := operandsOf(e); len(args) == 1 && overloads.IsTypeConversionFunction(e.AsCall().FunctionName()) {
			return r.constant(args[0])
		}
		return r.emptyMembership(e)
	}
	return false
}

// emptyMembership reports `x in []`, which is false without a look at x.
func (r *reader) emptyMembership(e ast.Expr) bool {
	if !r.is(e, "@in", 2) || r.overload(e) != overloads.InList {
		return false
	}
	list := operandsOf(e)[1]
	return list.Kind() == ast.ListKind && list.AsList().Size() == 0
}

// price returns what an expression costs on top of its parts, 0 if it is constant.
func (r *reader) price(e ast.Expr, cost int64) int64 {
	if r.constant(e) {
		return 0
	}
	return cost
}

// priced adds a cost to that of a value.
func priced(cost int64, of valueOf) valueOf {
	if of == nil || cost == 0 {
		return of
	}
	return func(f *frame) (any, bool) {
		f.cost += cost
		return of(f)
	}
}

// pricedBool is priced for a bool.
func pricedBool(cost int64, of boolOf) boolOf {
	if of == nil || cost == 0 {
		return of
	}
	return func(f *frame) (bool, bool) {
		f.cost += cost
		return of(f)
	}
}
