package lookup_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/mapd-project/mapd/pkg/lookup"
)

func Example() {
	selectors := map[string]string{"everything": "", "shops": "app=shop", "labelled": "team"}
	names := []string{"everything", "labelled", "shops"}
	table := lookup.New(names, func(needs []lookup.Need, name string) []lookup.Need {
		selector, err := labels.Parse(selectors[name])
		if err != nil {
			panic(err)
		}
		return lookup.Needs(needs, lookup.Object, selector)
	})

	object := lookup.Labels{"app": "shop"}
	fmt.Println(table.Always, table.Find(nil, lookup.Object, object))
	// Output: [everything] [shops]
}
