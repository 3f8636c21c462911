package explain_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/mapd-project/mapd/pkg/mapd"
)

func Example() {
	policies, err := mapd.Load(mapd.Options{Unbound: true}, mapd.File{Name: "owner.yaml", Data: []byte(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: owner}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [Pod]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'owner': 'shop'}}}"}
`)})
	if err != nil {
		panic(err)
	}
	for doc, err := range mapd.Read("pod.yaml", strings.NewReader("{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}")) {
		if err != nil {
			panic(err)
		}
		result, err := policies.Eval(context.Background(), doc, mapd.RequestOptions{})
		if err != nil {
			panic(err)
		}
		for reason := range result.WhyNot(context.Background()) {
			fmt.Println(reason)
		}
	}
	// Output:
	// owner: spec.matchConstraints.resourceRules[0].resources [Pod] names no resource of v1; did you mean pods?
}
