package engine

import (
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mapd-project/mapd/pkg/lookup"
	"github.com/mapd-project/mapd/pkg/tree"
)

// stringField returns a string of an object's metadata.
func stringField(obj map[string]any, name string) (string, bool) {
	meta, _ := obj["metadata"].(map[string]any)
	s, ok := meta[name].(string)
	return s, ok
}

// rawLabels returns the labels as they are in the object.
func rawLabels(obj map[string]any) map[string]any {
	meta, _ := obj["metadata"].(map[string]any)
	m, _ := meta["labels"].(map[string]any)
	return m
}

// plainLabels returns the labels if a server would store them as they are: metadata is an
// object, and the values of labels are strings.
func plainLabels(obj map[string]any) (set lookup.Labels, ok bool) {
	meta, ok := obj["metadata"].(map[string]any)
	if !ok {
		return nil, false
	}
	value, given := meta["labels"]
	if !given {
		return nil, true
	}
	m, ok := value.(map[string]any)
	for _, v := range m {
		if _, text := v.(string); !text {
			return nil, false
		}
	}
	return m, ok
}

// labelsOf returns the labels for a selector. As with unstructured.Unstructured, there are none
// if one of the values is not a string.
func labelsOf(obj map[string]any) labels.Set {
	m := rawLabels(obj)
	out := make(labels.Set, len(m))
	for k, v := range m {
		s, ok := v.(string)
		if !ok {
			return nil
		}
		out[k] = s
	}
	return out
}

// withNamespace returns obj with a namespace, or without any if that is "". If metadata is not
// an object, obj stays as it is.
func withNamespace(obj *unstructured.Unstructured, namespace string) *unstructured.Unstructured {
	value, given := obj.Object["metadata"]
	meta, ok := value.(map[string]any)
	old, has := meta["namespace"]
	switch {
	case given && !ok, namespace == "" && !has, namespace != "" && old == namespace:
		return obj
	}
	root := maps.Clone(obj.Object)
	if meta = maps.Clone(meta); meta == nil {
		meta = map[string]any{}
	}
	if namespace == "" {
		delete(meta, "namespace")
	} else {
		meta["namespace"] = namespace
	}
	root["metadata"] = meta
	return &unstructured.Unstructured{Object: root}
}

// sameNumbers returns after with its numbers as a server reads them: numbers that are equal to
// before's keep before's type, whether written as 5 or 5.0, and a new number without a fraction
// is an integer. Parts that are equal to before's are shared with before.
func sameNumbers(before, after any) any {
	switch after := after.(type) {
	case float64:
		switch before := before.(type) {
		case int64:
			if float64(before) == after {
				return before
			}
		case float64:
			if before == after {
				return before
			}
		}
		if after == math.Trunc(after) && math.Abs(after) < 1<<63 {
			return int64(after)
		}
	case map[string]any:
		return sameNumbersMap(before, after)
	case []any:
		return sameNumbersList(before, after)
	}
	return after
}

func sameNumbersMap(before any, after map[string]any) any {
	if tree.Same(before, after) {
		return before
	}
	b, _ := before.(map[string]any)
	same := b != nil && after != nil && len(b) == len(after)
	out, owned := after, false
	for k, v := range after {
		old, has := b[k]
		n := sameNumbers(old, v)
		same = same && has && tree.Same(n, old)
		if !tree.Same(n, v) {
			if !owned {
				out, owned = maps.Clone(after), true
			}
			out[k] = n
		}
	}
	if same {
		return before
	}
	return out
}

// sameNumbersList compares elements of the same index.
func sameNumbersList(before any, after []any) any {
	if tree.Same(before, after) {
		return before
	}
	b, _ := before.([]any)
	same := b != nil && after != nil && len(b) == len(after)
	out, owned := after, false
	for i, v := range after {
		var old any
		if i < len(b) {
			old = b[i]
		}
		n := sameNumbers(old, v)
		same = same && tree.Same(n, old)
		if !tree.Same(n, v) {
			if !owned {
				out, owned = slices.Clone(after), true
			}
			out[i] = n
		}
	}
	if same {
		return before
	}
	return out
}
