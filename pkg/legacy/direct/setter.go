package direct

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// setter changes the value at the end of a mutator's location. It serves one application, and
// writes the same value, not copies of it, in all places.
type setter interface {
	field(obj map[string]any, name string) error
}

func setterOf(m *legacy.Mutator, obj *unstructured.Unstructured, c Context) setter {
	switch {
	case m.From != nil && m.From.External != nil:
		return external{m.From.External, c.Username}
	case m.From != nil:
		return assign{valueOf(m.From, obj)}
	case m.Set != nil && m.Set.Prune:
		return prune{values: m.Set.Values}
	case m.Set != nil:
		return merge{values: deepCopy(m.Set.Values)}
	default:
		return image{set: *m.Image}
	}
}

// valueOf returns the value that an Assign or AssignMetadata writes: "" for metadata that the
// object lacks (Gatekeeper spec §3.2).
func valueOf(from *legacy.Source, obj *unstructured.Unstructured) any {
	switch from.Metadata {
	case "namespace":
		return obj.GetNamespace()
	case "name":
		return obj.GetName()
	default:
		return deepCopy(from.Value)
	}
}

// external writes a Pending for a value of external data (Gatekeeper spec §11.4).
type external struct {
	*legacy.External
	username string
}

func (s external) field(obj map[string]any, name string) error {
	key := ""
	if s.DataSource == "Username" {
		key = s.username
	}
	if old, exists := obj[name]; exists {
		var found string
		switch old := old.(type) {
		case *tree.Pending:
			found = old.Key
		case string:
			found = old
		default:
			return fmt.Errorf("value assigned to external data placeholder is not a string, got %T", old)
		}
		if !s.AlwaysUsername {
			key = found
		}
	}
	obj[name] = s.pending(key)
	return nil
}

// pending returns the placeholder for the value (Gatekeeper spec §11.5).
func (s external) pending(key string) *tree.Pending {
	p := &tree.Pending{Source: s.Provider, Key: key}
	switch s.FailurePolicy {
	case "Fail":
		p.Must = true
	case "Ignore":
		p.Fallback = key
	case "UseDefault":
		p.Fallback = s.Default
	}
	return p
}

// assign writes a value.
type assign struct{ value any }

func (a assign) field(obj map[string]any, name string) error {
	obj[name] = a.value
	return nil
}

// merge appends the values that a list lacks (Gatekeeper spec §5).
type merge struct{ values []any }

func (s merge) field(obj map[string]any, name string) error {
	if _, ok := obj[name]; !ok {
		obj[name] = deepCopy(s.values) // duplicates included
		return nil
	}
	list, err := listAt(obj, name)
	if err != nil {
		return err
	}
	for _, v := range s.values {
		if !contains(list, v) {
			list = append(list, v)
		}
	}
	obj[name] = list
	return nil
}

// prune removes values from a list (Gatekeeper spec §5).
type prune struct{ values []any }

// field does nothing if the field is missing. The walk has created its parents by then, and
// they stay.
func (s prune) field(obj map[string]any, name string) error {
	if _, ok := obj[name]; !ok {
		return nil
	}
	list, err := listAt(obj, name)
	if err != nil {
		return err
	}
	kept := make([]any, 0, len(list))
	for _, v := range list {
		if !contains(s.values, v) {
			kept = append(kept, v)
		}
	}
	obj[name] = kept
	return nil
}

func listAt(obj map[string]any, name string) ([]any, error) {
	list, ok := obj[name].([]any)
	if !ok {
		return nil, fmt.Errorf("%v is not a list of values, cannot treat it as a set", obj[name])
	}
	return list, nil
}

// contains compares deeply, including types (Gatekeeper spec §2.4).
func contains(list []any, value any) bool {
	for _, v := range list {
		if tree.Equal(v, value) {
			return true
		}
	}
	return false
}

// deepCopy copies maps and lists. Nil ones, which are encoded as null, stay nil.
func deepCopy[T any](value T) T { return copyOf(value).(T) }

func copyOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v == nil {
			return v
		}
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = copyOf(e)
		}
		return out
	case []any:
		if v == nil {
			return v
		}
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = copyOf(e)
		}
		return out
	}
	return v // a scalar, or a Pending
}
