package cel

import (
	"math"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// exactQuantities are the functions of quantities that answer otherwise from 1.38 on, where
// k8s.io/apimachinery 0.38 keeps integers of 19 digits as such, does not change what is compared,
// and multiplies 0 with no infinity.
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

// comparingQuantities is a function that compares quantities and says how, or whether so.
func comparingQuantities(name, id string, result *celgo.Type, so int) celgo.EnvOption {
	return celgo.Function(name, celgo.MemberOverload(id, []*celgo.Type{apiservercel.QuantityType, apiservercel.QuantityType}, result, celgo.BinaryBinding(func(x, y ref.Val) ref.Val {
		p, ok := x.Value().(*resource.Quantity)
		q, also := y.Value().(*resource.Quantity)
		if !ok || !also {
			return types.MaybeNoSuchOverloadErr(x)
		}
		copied := *p // Cmp of 0.37 changes how its receiver is kept
		is := copied.Cmp(*q)
		if so == 0 {
			return types.Int(is)
		}
		return types.Bool(is == so)
	})))
}

// exactQuantity is resource.ParseQuantity, but that 19 digits that stand for an integer of 64 bits are
// kept as one, as 0.38 does. The least such integer is not: Sub of 0.37 cannot subtract it.
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
