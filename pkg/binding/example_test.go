package binding_test

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

func Example() {
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		panic(err)
	}
	types := openapi.New(openapi.Builtin())
	written, err := policy.DecodeJSON([]byte(`{
	  "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": "owner"},
	  "spec": {
	    "reinvocationPolicy": "Never",
	    "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},
	    "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {
	      "expression": "Object{metadata: Object.metadata{labels: {'owner': namespaceObject.metadata.name}}}"}}]
	  }
	}`))
	if err != nil {
		panic(err)
	}
	p, err := policy.Compile(written, policy.Deps{Env: env, Types: types})
	if err != nil {
		panic(err)
	}
	bound, err := binding.DecodeJSON([]byte(`{
	  "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": "everywhere"},
	  "spec": {"policyName": "owner"}
	}`))
	if err != nil {
		panic(err)
	}
	everywhere, err := binding.Compile(bound)
	if err != nil {
		panic(err)
	}
	// The zero Sources: every namespace exists and has the label of its name.
	index, err := binding.NewIndex([]*policy.Policy{p}, []*binding.Binding{everywhere}, binding.Sources{})
	if err != nil {
		panic(err)
	}
	req, err := policy.NewRequest(types, admissionv1.Create, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web", "namespace": "shop"},
	}})
	if err != nil {
		panic(err)
	}

	for _, invocation := range index.Select(context.Background(), req) {
		fmt.Println(invocation.Policy.Name(), invocation.Binding, invocation.Resource.Resource, invocation.HasParams)
	}
	// Output:
	// owner everywhere pods false
}
