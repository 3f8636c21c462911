package tree

import (
	"reflect"
	"unsafe"
)

// Same reports whether a and b are known to be equal without looking inside:
// the same map, the same list header (first element and length) or equal
// scalars of one type. It takes constant time (a string's bytes are compared).
// False means "unknown", not "different": use Equal to know.
func Same(a, b any) bool {
	switch a := a.(type) {
	case nil:
		return b == nil
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
	case []any:
		b, ok := b.([]any)
		return ok && len(a) == len(b) && unsafe.SliceData(a) == unsafe.SliceData(b)
	case string:
		b, ok := b.(string)
		return ok && a == b
	case bool:
		b, ok := b.(bool)
		return ok && a == b
	case int64:
		b, ok := b.(int64)
		return ok && a == b
	case float64:
		b, ok := b.(float64)
		return ok && a == b
	}
	return false
}

// Equal reports whether a and b are the same JSON data. The integer 1 and the
// float 1.0 are different, as they are in an object that keeps them apart. A
// nil map or list, which stands for null, differs from an empty one.
// Values that cannot be in a tree are compared with reflect.DeepEqual, so that Equal never
// panics on a value that an expression returned.
func Equal(a, b any) bool {
	if Same(a, b) {
		return true
	}
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) || (a == nil) != (b == nil) {
			return false
		}
		for k, av := range a {
			bv, ok := b[k]
			if !ok || !Equal(av, bv) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) || (a == nil) != (b == nil) {
			return false
		}
		for i := range a {
			if !Equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case nil, string, bool, int64, float64:
		return false
	}
	return reflect.DeepEqual(a, b)
}
