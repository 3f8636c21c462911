package legacy_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/legacy"
)

func mutator(name, location string, value any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "mutations.gatekeeper.sh/v1", "kind": "Assign", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"applyTo": []any{map[string]any{
				"groups": []any{""}, "versions": []any{"v1"}, "kinds": []any{"Pod"},
			}},
			"location":   location,
			"parameters": map[string]any{"assign": map[string]any{"value": value}},
		},
	}}
}

func Example() {
	var mutators []*legacy.Mutator
	for _, u := range []*unstructured.Unstructured{
		mutator("list", "spec.containers[name: *].image", "nginx"),
		mutator("object", "spec.containers.image", "nginx"),
	} {
		m, err := legacy.Decode(u)
		if err != nil {
			panic(err)
		}
		fmt.Println(m.ID(), "writes", m.Location)
		mutators = append(mutators, m)
	}
	fmt.Println("in conflict:", len(legacy.Conflicts(mutators)))

	_, err := legacy.Decode(mutator("broken", "spec..image", "nginx"))
	fmt.Println(err)
	// Output:
	// Assign/list writes spec.containers[name: *].image
	// Assign/object writes spec.containers.image
	// in conflict: 2
	// Assign/broken: spec.location: column 6: invalid location format `spec..image` for Assign broken: unexpected token: expected field name or eof, got: SEPARATOR: "."
}
