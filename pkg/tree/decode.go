package tree

import (
	"errors"
	"fmt"

	kjson "sigs.k8s.io/json"
)

// Decode reads one JSON object. Integers that fit int64 and are written
// without a fraction stay integers; of a key given twice the last one counts,
// as in the API server's own lenient decoder. Errors of syntax name the offset
// in data.
//
// The decoder bounds nesting at 10,000 levels, as the API server does, so Decode accepts
// whatever a server stores. The functions of this package recurse once for each level, and that
// many levels need a few MiB of Go's stack.
func Decode(data []byte) (map[string]any, error) {
	var v any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &v); err != nil {
		if ok, offset := kjson.SyntaxErrorOffset(err); ok {
			return nil, fmt.Errorf("offset %d: %w", offset, err)
		}
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("offset 0: not a JSON object but " + kind(v))
	}
	return m, nil
}

// kind names the JSON type of a tree for an error.
func kind(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case int64, float64:
		return "a number"
	}
	return fmt.Sprintf("a %T", v)
}
