package quick_test

import (
	"fmt"

	celgo "github.com/google/cel-go/cel"

	"github.com/mapd-project/mapd/pkg/cel/quick"
)

type host map[string]any

func (h host) Root(quick.Root) any       { return map[string]any(h) }
func (host) Variable(int) (any, bool)    { return nil, false }
func (host) Work(int64) (continues bool) { return true }

func Example() {
	env, err := celgo.NewEnv(celgo.Variable("object", celgo.DynType))
	if err != nil {
		panic(err)
	}
	checked, issues := env.Compile("has(object.spec) && size(object.spec.containers) > 1")
	if issues.Err() != nil {
		panic(issues.Err())
	}
	program := quick.Compile(checked.NativeRep(), quick.Options{Metered: true, Roots: map[string]quick.Root{"object": quick.Object}})

	var room quick.Frames
	result, ok := program.Run(host{"spec": map[string]any{"containers": []any{"a", "b"}}}, &room)
	fmt.Println(result.Value, ok)
	// A field that is missing would be an error, and errors are cel-go's.
	_, ok = program.Run(host{"spec": map[string]any{}}, &room)
	fmt.Println(ok)
	// Output:
	// true true
	// false
}
