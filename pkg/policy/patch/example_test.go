package patch_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy/draft"
	"github.com/mapd-project/mapd/pkg/policy/patch"
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

	err = patch.Apply(&d, kind, []cel.PatchOp{{Op: "replace", Path: "/spec/containers/0/image", Value: "mirror/nginx", HasValue: true}})
	fmt.Println(d.Changed(), err)

	// A patch whose last operation fails changes nothing.
	err = patch.Apply(&d, kind, []cel.PatchOp{
		{Op: "add", Path: "/metadata/labels", Value: map[string]any{"owner": "shop"}, HasValue: true},
		{Op: "remove", Path: "/spec/nodeName"},
	})
	fmt.Println(d.Object().GetLabels(), err)
	// Output:
	// [/spec/containers/0/image] <nil>
	// map[] JSON Patch: error in remove for path: '/spec/nodeName': Unable to remove nonexistent key: nodeName: missing value
}
