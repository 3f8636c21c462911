package quantity_test

import (
	"fmt"

	"github.com/mapd-project/mapd/pkg/quantity"
)

func ExampleParse() {
	q, err := quantity.Parse("1024Mi")
	fmt.Println(q.String(), err)
	_, err = quantity.Parse("1e-1000000000")
	fmt.Println(err)
	// Output:
	// 1Gi <nil>
	// quantities of more than 1000 characters or with an exponent beyond ±1000 are not evaluated
}
