package direct

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// setter is what a mutator does where its location ends. It serves one
// application: in all places it writes the same value, not copies of it.
type setter interface {
	field(obj map[string]any, name string) error
}

func setterOf(m *legacy.Mutator, obj *unstructured.Unstructured) (setter, error) {
	switch {
	case m.From != nil:
		value, err := valueOf(m.From, obj)
		return assign{value}, err
	case m.Set != nil && m.Set.Prune:
		return prune{values: m.Set.Values}, nil
	case m.Set != nil:
		return merge{values: deepCopy(m.Set.Values)}, nil
	default:
		return image{set: *m.Image}, nil
	}
}

// valueOf returns what an Assign or AssignMetadata writes: "" for metadata that
// the object lacks (Gatekeeper spec §3.2).
func valueOf(from *legacy.Source, obj *unstructured.Unstructured) (any, error) {
	switch {
	case from.External != nil:
		return nil, errors.New("external data is not supported")
	case from.Metadata == "namespace":
		return obj.GetNamespace(), nil
	case from.Metadata == "name":
		return obj.GetName(), nil
	default:
		return runtime.DeepCopyJSONValue(from.Value), nil
	}
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

// field does nothing if the field is missing. By then the walk has created its
// parents, and they stay.
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

// contains compares deeply and typed (Gatekeeper spec §2.4).
func contains(list []any, value any) bool {
	for _, v := range list {
		if tree.Equal(v, value) {
			return true
		}
	}
	return false
}

// deepCopy copies values. It returns nil for nil, which is written as null.
func deepCopy(values []any) []any {
	return runtime.DeepCopyJSONValue(values).([]any)
}
