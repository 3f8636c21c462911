package cel

import (
	"math"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// exactQuantities are the functions of quantities whose results change in 1.38:
// k8s.io/apimachinery 0.38 keeps integers of 19 digits exactly, does not modify the operands of
// a comparison, and multiplies 0 with no infinity.
var exactQuantities = []celgo.EnvOption{
	celgo.Function("quantity", celgo.Overload("string_to_quantity", []*celgo.Type{celgo.StringType}, apiservercel.QuantityType, celgo.UnaryBinding(func(x ref.Val) ref.Val {
		s, ok := x.(types.String)
		if !ok {
			return types.MaybeNoSuchOverloadErr(x)
		}
		q, err := exactQuantity(string(s))
		if err != nil {
			return types.WrapErr(err)
		}
		return apiservercel.Quantity{Quantity: &q}
	}))),
	celgo.Function("asApproximateFloat", celgo.MemberOverload("quantity_get_float", []*celgo.Type{apiservercel.QuantityType}, celgo.DoubleType, celgo.UnaryBinding(func(x ref.Val) ref.Val {
		q, ok := x.Value().(*resource.Quantity)
		if !ok {
			return types.MaybeNoSuchOverloadErr(x)
		}
		v := q.AsApproximateFloat64()
		if math.IsNaN(v) { // 0 times infinity
			v = 0
		}
		return types.Double(v)
	}))),
	comparingQuantities("compareTo", "quantity_compare_to", celgo.IntType, 0),
	comparingQuantities("isGreaterThan", "quantity_is_greater_than", celgo.BoolType, 1),
	comparingQuantities("isLessThan", "quantity_is_less_than", celgo.BoolType, -1),
}

// comparingQuantities returns a function that compares quantities. It returns the order, or
// whether the order is so if result is bool.
func comparingQuantities(name, id string, result *celgo.Type, so int) celgo.EnvOption {
	return celgo.Function(name, celgo.MemberOverload(id, []*celgo.Type{apiservercel.QuantityType, apiservercel.QuantityType}, result, celgo.BinaryBinding(func(x, y ref.Val) ref.Val {
		p, ok := x.Value().(*resource.Quantity)
		q, also := y.Value().(*resource.Quantity)
		if !ok || !also {
			return types.MaybeNoSuchOverloadErr(x)
		}
		copied := *p // Cmp of 0.37 modifies its receiver
		is := copied.Cmp(*q)
		if so == 0 {
			return types.Int(is)
		}
		return types.Bool(is == so)
	})))
}

// exactQuantity is resource.ParseQuantity, except that a 64-bit integer of 19 digits is kept as
// an integer, as 0.38 does. The least such integer is not, since Sub of 0.37 cannot subtract
// it.
func exactQuantity(s string) (resource.Quantity, error) {
	q, err := resource.ParseQuantity(s)
	if err != nil || q.Format == resource.BinarySI {
		return q, err
	}
	n, digits := int64(0), 0 // before the suffix, without leading zeros
scan:
	for i := range len(s) {
		switch c := s[i]; {
		case i == 0 && (c == '+' || c == '-'):
			continue
		case c == '.':
			digits = max(digits, 1) // a numerator of zeros is one
			continue
		case c >= '0' && c <= '9':
			if n = 10*n + int64(c-'0'); digits > 0 || c != '0' {
				digits++
			}
			continue
		}
		break scan
	}
	if digits != 19 || n <= 0 { // what is too large is negative
		return q, nil
	}
	if s[0] == '-' {
		n = -n
	}
	for scale := range resource.Scale(19) { // less than 0 is a fraction, also if that is 0
		if exact := resource.NewScaledQuantity(n, scale); q.Cmp(*exact) == 0 {
			return *exact, nil
		}
	}
	return q, nil
}
