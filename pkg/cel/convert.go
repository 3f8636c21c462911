package cel

import (
	gojson "encoding/json"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"google.golang.org/protobuf/types/known/structpb"
	"sigs.k8s.io/json"
)

// toJSON returns what is left of a value after the way that the in-tree plugin
// sends it: to a protobuf Value, from there to JSON text, and that decoded.
// Common values take a short cut with the same end; all others, and all that
// fail, go the whole way, so that texts are the same too.
func toJSON(v ref.Val) (any, error) {
	if tree, ok := shortcut(v); ok {
		return tree, nil
	}
	return detour(v)
}

// detour is the way of k8s.io/apiserver …/mutating/patch/json_patch.go.
func detour(v ref.Val) (any, error) {
	pb, err := v.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		return nil, err
	}
	text, err := gojson.Marshal(pb)
	if err != nil {
		return nil, err
	}
	var tree any
	if err := json.UnmarshalCaseSensitivePreserveInts(text, &tree); err != nil {
		return nil, err
	}
	return tree, nil
}

// maxSafeInt is the largest integer that cel-go writes as a JSON number. Beyond
// it, and below its negative, integers become strings.
const maxSafeInt = 1<<53 - 1

// shortcut returns the end of the detour, or false if it does not know it.
func shortcut(v ref.Val) (any, bool) {
	switch v := v.(type) {
	case types.String:
		return string(v), utf8.ValidString(string(v))
	case types.Bool:
		return bool(v), true
	case types.Int:
		return safeInt(int64(v)), true
	case types.Uint:
		if v > maxSafeInt {
			return strconv.FormatUint(uint64(v), 10), true
		}
		return int64(v), true
	case types.Double:
		return number(float64(v))
	case types.Null:
		return nil, true
	case *types.Optional:
		if !v.HasValue() {
			return nil, false
		}
		return shortcut(v.GetValue())
	case *objectVal:
		fields, err := v.native()
		if err != nil {
			return nil, false
		}
		return structTree(fields)
	}
	// By type, not by interface: there are values that are lists or maps to
	// CEL and have conversions of their own.
	switch v.Type() {
	case types.ListType:
		return listTree(v)
	case types.MapType:
		return mapTree(v)
	}
	return nil, false
}

// toTyped is toJSON without what the detour does to numbers.
func toTyped(v ref.Val) (any, error) {
	if tree, ok := typed(v); ok {
		return tree, nil
	}
	return toJSON(v)
}

func typed(v ref.Val) (any, bool) {
	switch v := v.(type) {
	case types.Int:
		return int64(v), true
	case types.Double:
		return typedLeaf(float64(v))
	case types.String, types.Bool, types.Null, types.Uint:
		return shortcut(v)
	}
	switch v.Type() {
	case types.ListType, types.MapType:
		return sharedTree(v.Value(), typedLeaf)
	}
	return nil, false
}

// typedLeaf converts what a list or map of CEL may hold beside JSON data.
func typedLeaf(leaf any) (any, bool) {
	switch leaf := leaf.(type) {
	case int64:
		return leaf, true
	case float64:
		return leaf, !math.IsNaN(leaf) && !math.IsInf(leaf, 0)
	case structpb.NullValue:
		return nil, true
	case []string:
		return sharedTree(anyList(leaf), typedLeaf)
	case []ref.Val:
		out := make([]any, len(leaf))
		for i, e := range leaf {
			var ok bool
			if out[i], ok = typed(e); !ok {
				return nil, false
			}
		}
		return out, true
	case map[ref.Val]ref.Val:
		out := make(map[string]any, len(leaf))
		for k, e := range leaf {
			key, ok := k.(types.String)
			if !ok || !utf8.ValidString(string(key)) {
				return nil, false
			}
			if out[string(key)], ok = typed(e); !ok {
				return nil, false
			}
		}
		return out, true
	}
	return nil, false
}

func anyList(list []string) []any {
	out := make([]any, len(list))
	for i, e := range list {
		out[i] = e
	}
	return out
}

func listTree(v ref.Val) (any, bool) {
	switch elems := v.Value().(type) {
	case []any:
		// JSON data, or `a + b`, which converts the Go values of its elements
		// and not the elements.
		return dataTree(elems)
	case []ref.Val:
		out := make([]any, len(elems))
		for i, e := range elems {
			var ok bool
			if out[i], ok = shortcut(e); !ok {
				return nil, false
			}
		}
		return out, true
	case []string:
		out := make([]any, len(elems))
		for i, e := range elems {
			if !utf8.ValidString(e) {
				return nil, false
			}
			out[i] = e
		}
		return out, true
	}
	return nil, false
}

func mapTree(v ref.Val) (any, bool) {
	switch m := v.Value().(type) {
	case map[string]any:
		return dataTree(m)
	case map[ref.Val]ref.Val:
		out := make(map[string]any, len(m))
		for k, e := range m {
			key, ok := k.(types.String)
			if !ok || !utf8.ValidString(string(key)) {
				return nil, false
			}
			if out[string(key)], ok = shortcut(e); !ok {
				return nil, false
			}
		}
		return out, true
	}
	return nil, false
}

// dataTree converts JSON data that a value wraps. Parts that stay as they are
// are shared with it.
func dataTree(data any) (any, bool) { return sharedTree(data, dataLeaf) }

func dataLeaf(leaf any) (any, bool) {
	switch leaf := leaf.(type) {
	case int64:
		return safeInt(leaf), true
	case float64:
		return number(leaf)
	}
	return nil, false
}

// structTree converts the fields of an Object: structpb.NewValue makes all
// numbers double.
func structTree(data any) (any, bool) { return sharedTree(data, structLeaf) }

func structLeaf(leaf any) (any, bool) {
	switch leaf := leaf.(type) {
	case int64:
		return number(float64(leaf))
	case uint64:
		return number(float64(leaf))
	case float64:
		return number(leaf)
	}
	return nil, false
}

// sharedTree rebuilds maps and lists whose parts change and passes all leaves
// that are neither null, bool nor string to convert.
func sharedTree(data any, convert func(any) (any, bool)) (any, bool) {
	// What is returned as it came keeps its interface, which saves an allocation.
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
			c, ok := sharedTree(e, convert)
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
			c, ok := sharedTree(e, convert)
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
	case madeList:
		return sharedTree([]any(v), convert)
	case madeMap:
		return sharedTree(map[string]any(v), convert)
	}
	return convert(data)
}

// same reports whether a conversion returned what it was given.
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

// safeInt is an integer as a decoder sees it after cel-go wrote it.
func safeInt(n int64) any {
	if n > maxSafeInt || n < -maxSafeInt {
		return strconv.FormatInt(n, 10)
	}
	return n
}

// number is a double as a decoder sees it after protojson wrote it: the text
// of a whole number below 1e21 has no fraction and no exponent, so it is read
// back as an integer if it fits.
func number(f float64) (any, bool) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, false
	}
	if f != math.Trunc(f) || math.Abs(f) >= 1e21 {
		return f, true
	}
	if math.Abs(f) <= maxSafeInt {
		return int64(f), true
	}
	// The shortest text that denotes f need not be the integer that f is.
	n, err := strconv.ParseInt(strconv.FormatFloat(f, 'f', -1, 64), 10, 64)
	if err != nil {
		return f, true
	}
	return n, true
}
