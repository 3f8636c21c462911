package direct_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/direct"
)

func Example() {
	m, err := legacy.Decode(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "mutations.gatekeeper.sh/v1", "kind": "AssignMetadata", "metadata": map[string]any{"name": "owner"},
		"spec": map[string]any{
			"location":   "metadata.labels.owner",
			"parameters": map[string]any{"assign": map[string]any{"value": "shop"}},
		},
	}})
	if err != nil {
		panic(err)
	}
	system := direct.System{Mutators: []*legacy.Mutator{m}}
	result, err := system.Mutate(map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web"},
	}, direct.Context{})
	fmt.Println(result.Object["metadata"], result.Touched, err)
	// Output:
	// map[labels:map[owner:shop] name:web] [[AssignMetadata/owner]] <nil>
}
