package draft_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy/draft"
	"github.com/mapd-project/mapd/pkg/tree"
)

func Example() {
	kind, err := openapi.New(openapi.Builtin()).Kind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	if err != nil {
		panic(err)
	}
	pod := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "app", "image": "nginx", "resources": map[string]any{}}}}, "status": map[string]any{},
	}}
	var d draft.Draft
	d.Reset(pod, 1)

	d.Begin()
	d.Top()
	d.Edit.Down(tree.Token{Key: "metadata"}, pod.Object["metadata"])
	d.Edit.Set(tree.Token{Key: "labels"}, map[string]any{"owner": "shop"})
	fmt.Println(d.Settle(kind, openapi.FromJSONPatch), d.Changed())
	kept := d.Keep()

	d.Begin()
	d.Top()
	d.Edit.Set(tree.Token{Key: "spec"}, nil)
	d.Undo()
	fmt.Println(d.Object() == kept, kept.GetLabels(), pod.GetLabels())
	// Output:
	// <nil> [/metadata/labels]
	// true map[owner:shop] map[]
}
