// Package quantity bounds what is read as a quantity.
//
// resource.ParseQuantity computes a power of ten with as many digits as the exponent says,
// without a bound: "1e-1000000000" takes hours and all memory. mapd passes every string that
// may be a quantity, in CEL, in objects and in defaults, to Parse or to one of the checks here
// first.
package quantity

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Max is how many characters a quantity may have, and how far its exponent may be from 0. A
// server has no such bound; the largest quantity that it stores exactly has 19 digits, and it
// rounds what is below 1n.
const Max = 1000

// Err is the error for a quantity beyond Max.
var Err = fmt.Errorf("quantities of more than %d characters or with an exponent beyond ±%[1]d are not evaluated", Max)

// Bounded reports whether a text that may be a quantity is within Max.
func Bounded(s string) bool { return len(s) <= Max && exponent(strings.TrimSpace(s)) <= Max }

// Beyond reports whether a string has the form of a quantity and exceeds Max.
func Beyond(s string) bool { return hasForm(s) && !Bounded(s) }

// Parse is resource.ParseQuantity, but returns Err for a string beyond Max.
func Parse(s string) (resource.Quantity, error) {
	if !Bounded(s) {
		return resource.Quantity{}, Err
	}
	return resource.ParseQuantity(s)
}

// exponent returns the absolute value of a quantity's exponent as k8s.io/apimachinery
// …/resource/suffix.go: interpret reads it; 0 if there is none.
func exponent(s string) int {
	i := strings.IndexAny(s, "eE")
	if i < 0 {
		return 0
	}
	n, err := strconv.ParseInt(s[i+1:], 10, 64)
	if err != nil {
		return 0 // not a quantity
	}
	e := int(int32(n))
	return max(e, -e)
}

// Within returns obj with each string that is Beyond replaced by "0", for a decoder that parses
// quantities itself. It returns obj itself if there is no such string.
func Within(obj map[string]any) map[string]any {
	if out, changed := within(obj); changed {
		return out.(map[string]any)
	}
	return obj
}

func within(v any) (out any, changed bool) {
	switch v := v.(type) {
	case string:
		if Beyond(v) {
			return "0", true
		}
	case map[string]any:
		var copied map[string]any
		for key, was := range v {
			if is, changed := within(was); changed {
				if copied == nil {
					copied = maps.Clone(v)
				}
				copied[key] = is
			}
		}
		if copied != nil {
			return copied, true
		}
	case []any:
		var copied []any
		for i, was := range v {
			if is, changed := within(was); changed {
				if copied == nil {
					copied = slices.Clone(v)
				}
				copied[i] = is
			}
		}
		if copied != nil {
			return copied, true
		}
	}
	return nil, false
}

// hasForm reports whether a string begins like a number and has only characters that occur in
// quantities.
func hasForm(s string) bool {
	s = strings.TrimLeft(strings.TrimSpace(s), "+-")
	return s != "" && (s[0] == '.' || '0' <= s[0] && s[0] <= '9') && strings.Trim(s, "0123456789.eE+-numkKMGTPi \t\r\n") == ""
}
