package interpret

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/tree"
)

// maxIndex bounds the index at which a patch adds an element, because Kyverno fills the list with
// nulls up to that index.
const maxIndex = 10_000

// operation is one operation of a JSON patch.
type operation struct {
	Op    string          `json:"op"`
	Path  *string         `json:"path"`
	From  *string         `json:"from"`
	Value json.RawMessage `json:"value"`
}

// jsonPatch applies a JSON patch. A text that does not begin with [ is YAML. Missing parents are
// created, a removal of a missing field is ignored, and negative indices count from the end.
func jsonPatch(object map[string]any, text string) (map[string]any, error) {
	data := []byte(text)
	if !strings.HasPrefix(text, "[") {
		var err error
		if data, err = yaml.YAMLToJSON(data); err != nil {
			return nil, err
		}
	}
	var ops []operation
	if err := json.Unmarshal(data, &ops); err != nil {
		return nil, err
	}
	var doc any = copied(object)
	for _, op := range ops {
		if op.Path == nil {
			return nil, fmt.Errorf("an operation without path")
		}
		path := strings.Split(*op.Path, "/")
		if len(path) < 2 || path[0] != "" {
			unknown("a JSON patch of the whole object")
		}
		path = path[1:]
		var err error
		switch op.Op {
		case "add":
			doc, err = op.add(doc, path)
		case "remove":
			doc, err = changed(doc, path, remove)
			if err == errMissing {
				err = nil
			}
		case "replace":
			doc, err = op.replace(doc, path)
		default:
			unknown("a JSON patch with the operation %q", op.Op)
		}
		if err != nil {
			return nil, err
		}
	}
	out, ok := doc.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the object is none any more")
	}
	return out, nil
}

// errMissing is the error of an operation whose path does not exist.
var errMissing = fmt.Errorf("the patch names what is not there")

// value returns the value to write, with whole numbers as int64.
func (op operation) value() any {
	if op.Value == nil {
		unknown("a JSON patch without value")
	}
	return decoded(op.Value)
}

// decoded parses JSON into the types that objects have.
func decoded(data []byte) any {
	wrapped, err := decodeObject(slices.Concat([]byte(`{"v":`), data, []byte(`}`)))
	if err != nil {
		unknown("a value that is no JSON")
	}
	return wrapped["v"]
}

func (op operation) add(doc any, path []string) (any, error) {
	v := op.value()
	doc, err := ensured(doc, path)
	if err != nil {
		return nil, err
	}
	return changed(doc, path, func(in any, key string) (any, error) {
		switch in := in.(type) {
		case map[string]any:
			in[key] = v
			return in, nil
		case []any:
			if key == "-" {
				return append(in, v), nil
			}
			i, err := index(key, len(in)+1)
			if err != nil {
				return nil, err
			}
			return slices.Insert(in, i, v), nil
		}
		return nil, errMissing
	})
}

func (op operation) replace(doc any, path []string) (any, error) {
	v := op.value()
	return changed(doc, path, func(in any, key string) (any, error) {
		switch in := in.(type) {
		case map[string]any:
			if _, ok := in[key]; !ok {
				return nil, errMissing
			}
			in[key] = v
			return in, nil
		case []any:
			i, err := index(key, len(in))
			if err != nil {
				return nil, err
			}
			in[i] = v
			return in, nil
		}
		return nil, errMissing
	})
}

func remove(in any, key string) (any, error) {
	switch in := in.(type) {
	case map[string]any:
		delete(in, key)
		return in, nil
	case []any:
		i, err := strconv.Atoi(key)
		if err != nil {
			return nil, err
		}
		if i >= len(in) || i < -len(in) {
			return in, nil
		}
		if i < 0 {
			i += len(in)
		}
		return slices.Delete(in, i, i+1), nil
	}
	return nil, errMissing
}

// index returns the index that key stands for in a list of n elements.
func index(key string, n int) (int, error) {
	i, err := strconv.Atoi(key)
	if err != nil {
		return 0, err
	}
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return 0, fmt.Errorf("no element %s", key)
	}
	return i, nil
}

var unescape = strings.NewReplacer("~1", "/", "~0", "~")

// changed calls f for the container that path leads to, and returns doc with the result of f in
// its place. If a step is missing or null, it returns errMissing and doc unchanged.
func changed(doc any, path []string, f func(in any, key string) (any, error)) (any, error) {
	key := unescape.Replace(path[0])
	if len(path) == 1 {
		out, err := f(doc, key)
		if err != nil {
			return doc, err
		}
		return out, nil
	}
	switch in := doc.(type) {
	case map[string]any:
		next, ok := in[key]
		if !ok || next == nil {
			return doc, errMissing
		}
		out, err := changed(next, path[1:], f)
		if err == nil {
			in[key] = out
		}
		return doc, err
	case []any:
		i, err := index(key, len(in))
		if err != nil || in[i] == nil {
			return doc, errMissing
		}
		out, err := changed(in[i], path[1:], f)
		if err == nil {
			in[i] = out
		}
		return doc, err
	}
	return doc, errMissing
}

// ensured returns doc with all containers that path needs, except its last step.
func ensured(doc any, path []string) (any, error) {
	if len(path) == 1 {
		return doc, nil
	}
	key := unescape.Replace(path[0])
	made := func() any {
		if n, err := strconv.Atoi(path[1]); err == nil || path[1] == "-" {
			if n > maxIndex {
				unknown("the index %d in a JSON patch", n)
			}
			return make([]any, max(0, n)) // filled with null
		}
		return map[string]any{}
	}
	switch in := doc.(type) {
	case map[string]any:
		next := in[key]
		if next == nil && key != path[0] {
			return nil, errMissing // Kyverno would create the key with its escapes
		}
		if next == nil {
			if n, err := strconv.Atoi(path[1]); err == nil && n < -1 {
				return nil, fmt.Errorf("no element %d", n)
			}
			next = made()
		}
		out, err := ensured(next, path[1:])
		if err != nil {
			return nil, err
		}
		in[key] = out
		return in, nil
	case []any:
		i, err := index(key, len(in))
		if err == nil && in[i] != nil {
			in[i], err = ensured(in[i], path[1:])
			return in, err
		}
		// The element is inserted; if the list is too short, nulls fill it up to the index.
		if key == "-" {
			i = len(in)
		} else if i, err = strconv.Atoi(key); err != nil || i < -len(in)-1 {
			return nil, errMissing
		} else if i < 0 {
			i += len(in) + 1
		}
		if i > maxIndex {
			unknown("the index %d in a JSON patch", i)
		}
		for len(in) < i {
			in = append(in, nil)
		}
		next, err := ensured(made(), path[1:])
		if err != nil {
			return nil, err
		}
		if key == "-" {
			unknown("a JSON patch that appends an element and something in it")
		}
		return slices.Insert(in, i, next), nil
	}
	return nil, errMissing
}

// same reports whether two JSON values are equal.
func same(a, b any) bool { return tree.Equal(a, b) }
