package mapd_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"

	"github.com/mapd-project/mapd/pkg/mapd"
)

const owner = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: owner}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{metadata: Object.metadata{labels: {"owner": namespaceObject.metadata.name}}}'
`

const pod = `apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop # the owner
spec:
  containers: [{name: app, image: nginx}]
`

func Example() {
	policies, err := mapd.Load(mapd.Options{Unbound: true}, mapd.File{Name: "owner.yaml", Data: []byte(owner)})
	if err != nil {
		log.Fatal(err)
	}
	for object, err := range mapd.Read("pod.yaml", strings.NewReader(pod)) {
		if err != nil {
			log.Fatal(err)
		}
		result, err := policies.Eval(context.Background(), object, mapd.RequestOptions{})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(result.Summary(), result.DiffText(false))
	}
	// Output:
	// Pod shop/web: changed by 1 policy
	//   owner › unbound-owner › mutations[0] ApplyConfiguration: metadata.labels.owner
	// Pod shop/web
	// + metadata.labels.owner: shop
}

// A Result is data first: the decision with its steps, the patch, the diff, and the
// document with its comments.
func ExampleResult() {
	policies, err := mapd.Load(mapd.Options{Unbound: true}, mapd.File{Name: "owner.yaml", Data: []byte(owner)})
	if err != nil {
		log.Fatal(err)
	}
	for object := range mapd.Read("pod.yaml", strings.NewReader(pod)) {
		result, err := policies.Eval(context.Background(), object, mapd.RequestOptions{})
		if err != nil {
			log.Fatal(err)
		}
		for _, step := range result.Decision.Steps {
			fmt.Println(step.Policy, step.Outcome, step.Paths())
		}
		for _, change := range result.Diff() {
			fmt.Println(change.Path, change.Before, change.After)
		}
		text, err := result.Text()
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s", text)
	}
	// Output:
	// owner changed [/metadata/labels]
	// metadata.labels.owner <nil> shop
	// apiVersion: v1
	// kind: Pod
	// metadata:
	//   name: web
	//   namespace: shop # the owner
	//   labels:
	//     owner: shop
	// spec:
	//   containers: [{name: app, image: nginx}]
}

// All faults of all documents come together, each with its place.
func ExampleLoad() {
	_, err := mapd.Load(mapd.Options{}, mapd.File{Name: "owner.yaml", Data: []byte(strings.Replace(owner, "namespaceObject", "namespace", 1))})
	var refused *mapd.LoadError
	if errors.As(err, &refused) {
		for _, err := range refused.Errs {
			var at *mapd.Error
			if errors.As(err, &at) {
				fmt.Println(at.Line, at.Column)
				fmt.Println(at.Render())
			}
		}
	}
	// Output:
	// 12 71
	// owner.yaml: document 1, line 12, column 71: MutatingAdmissionPolicy owner: spec.mutations[0].applyConfiguration.expression: reserved identifier: namespace
	//         expression: 'Object{metadata: Object.metadata{labels: {"owner": namespace.metadata.name}}}'
	//                                                                         ^
}
