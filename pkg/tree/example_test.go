package tree_test

import (
	"fmt"

	"github.com/mapd-project/mapd/pkg/tree"
)

func Example() {
	before := map[string]any{"metadata": map[string]any{"name": "web"}, "spec": map[string]any{"replicas": int64(1)}}

	// An Edit copies what it writes to. Everything else is shared with before.
	var e tree.Edit
	e.Reset(before)
	e.Down(tree.Token{Key: "metadata"}, before["metadata"])
	e.Set(tree.Token{Key: "labels"}, map[string]any{"owner": "shop"})
	e.Keep()
	after := e.Root().(map[string]any)

	patch, err := tree.EncodePatch(tree.Diff(before, after))
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", patch)
	fmt.Println("spec is shared:", tree.Same(before["spec"], after["spec"]))
	// Output:
	// [{"op":"add","path":"/metadata/labels","value":{"owner":"shop"}}]
	// spec is shared: true
}
