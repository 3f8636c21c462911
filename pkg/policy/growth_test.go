package policy

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/cel"
)

// Mutations that each add to the object end before it is more than a server stores.
func TestGrow(t *testing.T) {
	data := map[string]any{}
	var grown int64
	in := Input{Object: &unstructured.Unstructured{Object: map[string]any{"data": data}}, Grown: &grown}
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

// A patch that opens a gap in a long list again and again ends.
func TestMovedElements(t *testing.T) {
	list := make([]any, 1<<18)
	ops := make([]cel.PatchOp, 1000)
	for i := range ops {
		ops[i] = cel.PatchOp{Op: "add", Path: "/list/0", Value: "x", HasValue: true}
	}
	doc := map[string]any{"list": list}
	if _, err := applyJSONPatch(doc, ops); err == nil || !strings.Contains(err.Error(), "elements of lists") {
		t.Errorf("error = %v", err)
	}
	doc["list"] = list[:1000]
	if _, err := applyJSONPatch(doc, ops); err != nil {
		t.Error(err)
	}
}
