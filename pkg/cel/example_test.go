package cel_test

import (
	"context"
	"fmt"

	"github.com/mapd-project/mapd/pkg/cel"
)

func Example() {
	env, err := cel.NewEnv(cel.Options{Version: "1.37"})
	if err != nil {
		panic(err)
	}
	scope := env.Scope(cel.Vars{Variables: true})
	if err := scope.Define("owner", "namespaceObject.metadata.name + '-team'"); err != nil {
		panic(err)
	}
	program, err := scope.Compile("Object{metadata: Object.metadata{labels: {'owner': variables.owner}}}", cel.Object)
	if err != nil {
		panic(err)
	}
	_, err = scope.Compile("objekt.spec.replicas > 1", cel.Bool)
	fmt.Println(err)
	scope.Done()

	budget := &cel.Budget{Remaining: cel.MutationBudget}
	patch, err := program.Object(context.Background(), scope.Bind(&cel.Input{
		Namespace: map[string]any{"metadata": map[string]any{"name": "shop"}},
	}, budget))
	fmt.Println(patch, err)
	fmt.Println("cost:", cel.MutationBudget-budget.Remaining)
	// Output:
	// compilation failed: ERROR: <input>:1:1: undeclared reference to 'objekt' (in container '')
	//  | objekt.spec.replicas > 1
	//  | ^
	// map[metadata:map[labels:map[owner:shop-team]]] <nil>
	// cost: 116
}
