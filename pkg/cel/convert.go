package cel

import (
	gojson "encoding/json"
	"math"
	"reflect"
	"strconv"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"google.golang.org/protobuf/types/known/structpb"
	"sigs.k8s.io/json"

	"github.com/mapd-project/mapd/pkg/cel/quick"
)

// toJSON returns a value as JSON data as the in-tree plugin does, which converts it to a
// protobuf Value, writes that as JSON text and decodes the text. Common values are converted
// directly, with the same result. All others, and all that fail, go through the same steps as
// in-tree, so that the error texts are the same too.
func toJSON(v ref.Val) (any, error) {
	if tree, ok := shortcut(v); ok {
		return tree, nil
	}
	return detour(v)
}

// detour converts with the steps of k8s.io/apiserver …/mutating/patch/json_patch.go.
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

// shortcut returns the result of detour without its steps, or false if only detour knows the
// result.
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

// toTyped is toJSON, but numbers keep their type and value.
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
		return quick.Convert(v.Value(), typedLeaf)
	}
	return nil, false
}

// typedLeaf converts a value that a list or map of CEL may hold and that is not JSON data.
func typedLeaf(leaf any) (any, bool) {
	switch leaf := leaf.(type) {
	case int64:
		return leaf, true
	case float64:
		return leaf, !math.IsNaN(leaf) && !math.IsInf(leaf, 0)
	case structpb.NullValue:
		return nil, true
	case []string:
		return quick.Convert(anyList(leaf), typedLeaf)
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

// dataTree converts JSON data that a value wraps. Parts that do not change are shared with it.
func dataTree(data any) (any, bool) { return quick.Convert(data, dataLeaf) }

func dataLeaf(leaf any) (any, bool) {
	switch leaf := leaf.(type) {
	case int64:
		return safeInt(leaf), true
	case float64:
		return number(leaf)
	}
	return nil, false
}

// structTree converts the fields of an Object, as structpb.NewValue does: all numbers become
// doubles.
func structTree(data any) (any, bool) { return quick.Convert(data, structLeaf) }

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

// safeInt returns an integer as it is decoded from the JSON that cel-go writes for it.
func safeInt(n int64) any {
	if n > maxSafeInt || n < -maxSafeInt {
		return strconv.FormatInt(n, 10)
	}
	return n
}

// number returns a double as it is decoded from the JSON that protojson writes for it: the text
// of a whole number below 1e21 has no fraction and no exponent, so it is decoded as an integer
// if it fits.
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
