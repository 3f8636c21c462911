package policy_test

import (
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

func Example() {
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		panic(err)
	}
	obj, err := policy.DecodeJSON([]byte(`{
	  "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": "owner"},
	  "spec": {
	    "reinvocationPolicy": "Never",
	    "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
	    "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/metadata/labels', value: label}]"}}]
	  }
	}`))
	if err != nil {
		panic(err)
	}
	for _, fault := range policy.Validate(obj, env) {
		fmt.Println(fault)
	}

	obj.Spec.Mutations[0].JSONPatch.Expression = "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'owner': 'shop'}}]"
	p, err := policy.Compile(obj, policy.Deps{Env: env, Types: openapi.New(openapi.Builtin())})
	if err != nil {
		panic(err)
	}
	fmt.Println(p.Name(), len(p.Mutations()), p.Mutations()[0].Type)
	// Output:
	// spec.mutations[0].jsonPatch.expression: Invalid value: "[JSONPatch{op: 'add', path: '/metadata/labels', value: label}]": compilation failed: ERROR: <input>:1:56: undeclared reference to 'label' (in container '')
	//  | [JSONPatch{op: 'add', path: '/metadata/labels', value: label}]
	//  | .......................................................^
	// owner 1 JSONPatch
}

func ExampleNewRequest() {
	req, err := policy.NewRequest(openapi.New(openapi.Builtin()), admissionv1.Create, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web", "namespace": "shop"},
	}})
	if err != nil {
		panic(err)
	}
	fmt.Println(req.Operation, req.Resource, req.Namespace, req.Name)
	// Output:
	// CREATE apps/v1, Resource=deployments shop web
}
