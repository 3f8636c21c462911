package translate_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/pkg/legacy"
)

func Example() {
	m, err := legacy.Decode(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "mutations.gatekeeper.sh/v1", "kind": "AssignMetadata", "metadata": map[string]any{"name": "owner"},
		"spec": map[string]any{
			"match": map[string]any{"kinds": []any{map[string]any{
				"apiGroups": []any{""}, "kinds": []any{"Pod"},
			}}},
			"location":   "metadata.labels.owner",
			"parameters": map[string]any{"assign": map[string]any{"value": "shop"}},
		},
	}})
	if err != nil {
		panic(err)
	}
	for _, unit := range translate.Native([]*legacy.Mutator{m}, translate.Options{}) {
		fmt.Println(unit.Name, unit.Verdicts[0].Verdict)
		fmt.Println(unit.Policy.Spec.MatchConditions[0].Expression)
		fmt.Println(unit.Policy.Spec.Mutations[0].ApplyConfiguration.Expression)
	}
	// Output:
	// assignmetadata-owner exact
	// !object.metadata.?labels.?owner.hasValue()
	// Object{metadata: Object.metadata{labels: {"owner": "shop"}}}
}
