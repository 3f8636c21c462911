package merge_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy/draft"
	"github.com/mapd-project/mapd/pkg/policy/merge"
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

	configuration, err := merge.Check(kind, map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "app", "imagePullPolicy": "Always"}},
	}})
	if err != nil {
		panic(err)
	}
	err = merge.Apply(&d, kind, configuration)
	fmt.Println(d.Object().Object["spec"], err)

	_, err = merge.Check(kind, map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "app", "args": []any{"-v"}}},
	}})
	fmt.Println(err)
	// Output:
	// map[containers:[map[image:nginx imagePullPolicy:Always name:app resources:map[]]]] <nil>
	// invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.containers[0].args
}
