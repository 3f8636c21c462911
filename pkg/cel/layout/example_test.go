package layout_test

import (
	"fmt"

	"github.com/mapd-project/mapd/pkg/cel/layout"
)

func ExampleFormat() {
	text, err := layout.Format(`has(object.metadata.labels)&&   "team" in object.metadata.labels // has one
		&& object.spec.template.spec.containers.all(c, c.image.startsWith("registry.example.com/"))`)
	fmt.Println(text, err)
	// Output:
	// has(object.metadata.labels) &&
	// "team" in object.metadata.labels && // has one
	// object.spec.template.spec.containers.all(c, c.image.startsWith("registry.example.com/")) <nil>
}
