package openapi_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/openapi"
)

func Example() {
	types := openapi.New(openapi.Builtin())
	gvk := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}

	resource, _ := types.ResourceFor(gvk)
	fmt.Println(resource.GVR.Resource, resource.Namespaced, resource.Subresources)

	kind, err := types.Kind(gvk)
	if err != nil {
		panic(err)
	}
	_, err = kind.Normalize(map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{"replica": int64(3)},
	})
	fmt.Println(err)
	// Output:
	// deployments true [scale status]
	// strict decoding error: unknown field "spec.replica"
}
