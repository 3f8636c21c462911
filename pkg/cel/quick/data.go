package quick

import (
	"maps"
	"math"
	"reflect"
	"slices"
	"unicode/utf8"

	"github.com/google/cel-go/common"
	"google.golang.org/protobuf/types/known/structpb"
)

// List and Map are made by the expression itself. Unlike data, their elements are not converted
// when they become part of an Object (spec §7.2); in all other respects they are like data.
type (
	List []any
	Map  map[string]any
)

func listOf(v any) ([]any, bool) {
	switch v := v.(type) {
	case []any:
		return v, true
	case List:
		return v, true
	}
	return nil, false
}

func mapOf(v any) (map[string]any, bool) {
	switch v := v.(type) {
	case map[string]any:
		return v, true
	case Map:
		return v, true
	}
	return nil, false
}

// traversal is the cost of reading a value of a size.
func traversal(size int64) int64 {
	return int64(math.Ceil(float64(size) * common.StringTraversalCostFactor))
}

// sizeOf returns the size of a value in cel-go's sense: for a string, its code points.
func sizeOf(v any) int64 {
	switch v := v.(type) {
	case string:
		return int64(utf8.RuneCountInString(v))
	case []any:
		return int64(len(v))
	case map[string]any:
		return int64(len(v))
	case List:
		return int64(len(v))
	case Map:
		return int64(len(v))
	}
	return 1
}

// typ is the name of a CEL type.
type typ string

// typeName returns the CEL type of data, "" for a value that is not data.
func typeName(v any) typ {
	switch v := v.(type) {
	case nil:
		return "null_type"
	case bool:
		return "bool"
	case string:
		return "string"
	case int64:
		return "int"
	case float64:
		return "double"
	case map[string]any:
		if v != nil {
			return "map"
		}
	case []any:
		if v != nil {
			return "list"
		}
	case Map:
		return "map"
	case List:
		return "list"
	case typ:
		return "type"
	}
	return ""
}

func isScalar(v any) bool {
	switch v.(type) {
	case bool, string, int64, float64:
		return true
	}
	return false
}

// equal compares scalars. It declines numbers of different types, and lists and maps whose
// elements would have to be compared.
func equal(x, y any) (same, ok bool) {
	switch a, b := typeName(x), typeName(y); {
	case a == "" || b == "":
		return false, false
	case a != b:
		number := (a == "int" || a == "double") && (b == "int" || b == "double")
		return false, !number
	case a == "map" || a == "list":
		m, n := sizeOf(x), sizeOf(y)
		return m == n, m == 0 || n == 0
	}
	return x == y, true
}

// small returns an integer that can be added to another without overflow.
func small(v any) (int64, bool) {
	n, ok := v.(int64)
	return n, ok && n == int64(int32(n))
}

// field returns the Go value of a field of an Object, as nativeField of package cel
// does.
func field(v any) (any, bool) {
	switch list := v.(type) {
	case nil:
		return structpb.NullValue_NULL_VALUE, true
	case List:
		var out []any
		for _, e := range list {
			e, ok := item(e)
			if !ok {
				return nil, false
			}
			out = append(out, e)
		}
		return out, true
	case Map:
		out := make(map[string]any, len(list))
		for k, e := range list {
			e, ok := item(e)
			if !ok {
				return nil, false
			}
			out[k] = e
		}
		return out, true
	case map[string]any:
		return v, list != nil && Shareable(list)
	}
	return v, Shareable(v)
}

// item returns the Go value of an element. It does not convert nested values.
func item(v any) (any, bool) {
	switch m := v.(type) {
	case nil:
		return structpb.NullValue_NULL_VALUE, true
	case bool, string, int64, float64:
		return v, true
	case map[string]any:
		return v, m != nil
	case []any:
		return v, m != nil
	}
	return nil, false
}

// Shareable reports whether JSON data is its own conversion into the value of a
// field: a null would become a protobuf constant and an empty list nil.
func Shareable(data any) bool {
	switch data := data.(type) {
	case string, bool, int64, float64:
		return true
	case map[string]any:
		for _, e := range data {
			if !Shareable(e) {
				return false
			}
		}
		return true
	case []any:
		for _, e := range data {
			if !Shareable(e) {
				return false
			}
		}
		return len(data) > 0
	}
	return false
}

// Convert returns a copy of data in which leaf has converted all leaves other than null, bools
// and strings. It copies only maps and lists whose parts change, and shares all others.
func Convert(data any, leaf func(any) (any, bool)) (any, bool) {
	// Unchanged values are returned in their own interface, which saves an allocation.
	switch v := data.(type) {
	case nil, bool:
		return data, true
	case string:
		return data, utf8.ValidString(v)
	case map[string]any:
		if v == nil {
			return map[string]any{}, true
		}
		out := v
		for k, e := range v {
			c, ok := Convert(e, leaf)
			if !ok || !utf8.ValidString(k) {
				return nil, false
			}
			if same(c, e) {
				continue
			}
			if sameMap(out, v) {
				out = maps.Clone(v)
			}
			out[k] = c
		}
		return out, true
	case []any:
		if v == nil {
			return []any{}, true
		}
		out := v
		for i, e := range v {
			c, ok := Convert(e, leaf)
			if !ok {
				return nil, false
			}
			if same(c, e) {
				continue
			}
			if &out[0] == &v[0] {
				out = slices.Clone(v)
			}
			out[i] = c
		}
		return out, true
	case List:
		return Convert([]any(v), leaf)
	case Map:
		return Convert(map[string]any(v), leaf)
	}
	return leaf(data)
}

// same reports whether a conversion returned its argument.
func same(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && b != nil && sameMap(a, b)
	case []any:
		b, ok := b.([]any)
		return ok && b != nil && (len(b) == 0 || &a[0] == &b[0])
	}
	// Scalars: of equal type and equal.
	return a == b
}

func sameMap(a, b map[string]any) bool {
	return reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer()
}
