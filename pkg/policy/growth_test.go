package policy

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Mutations that each add to the object end before it is more than a server stores.
func TestGrow(t *testing.T) {
	data := map[string]any{}
	var grown int64
	in := Input{Object: &unstructured.Unstructured{Object: map[string]any{"data": data}}, Run: Run{Grown: &grown}}
	text := strings.Repeat("a", 1<<20)
	for i := range 30 {
		if err := in.grow(int64(len(text))); err != nil {
			if !errors.Is(err, errObject) || i < 5 || i > 10 {
				t.Errorf("%v after %d MiB", err, i)
			}
			return
		}
		data[strings.Repeat("n", i+1)] = text
	}
	t.Error("the object has no bound")
}
