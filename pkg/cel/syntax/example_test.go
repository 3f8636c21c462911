package syntax_test

import (
	"fmt"

	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

func Example() {
	// A macro's variable hides one of the same name.
	text, err := syntax.Substitute(`params.names.exists(n, n == "a") || [1].all(params, params > 0)`, "params", "variables.params")
	fmt.Println(text, err)
	_, err = syntax.Substitute(`params.names[`, "params", "variables.params")
	fmt.Println(err != nil)
	// Output:
	// variables.params.names.exists(n, n == "a") || [1].all(params, params > 0) <nil>
	// true
}
