package cel

import (
	"math"
	"math/big"
	"testing"
)

// Estimates stay at the largest number instead of becoming small or negative.
func TestSaturation(t *testing.T) {
	numbers := []int64{0, 1, 2, 3, 1<<14 - 1, 1 << 14, 1 << 25, 1<<31 - 1, 1 << 32, 1 << 50, 1 << 62, math.MaxInt64 - 1, math.MaxInt64}
	most := big.NewInt(math.MaxInt64)
	for _, a := range numbers {
		for _, b := range numbers {
			for name, got := range map[string]int64{"add": add(a, b), "times": times(a, b)} {
				want := new(big.Int).Add(big.NewInt(a), big.NewInt(b))
				if name == "times" {
					want.Mul(big.NewInt(a), big.NewInt(b))
				}
				if want.Cmp(most) > 0 {
					want = most
				}
				if want.Int64() != got {
					t.Errorf("%s(%d, %d) = %d, want %v", name, a, b, got, want)
				}
			}
		}
	}
}
