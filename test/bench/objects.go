package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// policy is one kind of policy that the table has a row for.
type policy struct {
	name     string
	mutation func(i int) string
}

var policies = []policy{
	{"label, JSONPatch", func(i int) string {
		return jsonPatch(fmt.Sprintf(`[JSONPatch{op: "add", path: "/metadata/labels/l%d", value: "v"}]`, i))
	}},
	{"label, ApplyConfiguration", func(i int) string {
		return apply(fmt.Sprintf(`Object{metadata: Object.metadata{labels: {"l%d": "v"}}}`, i))
	}},
	{"label from the object's name, JSONPatch", func(i int) string {
		return jsonPatch(fmt.Sprintf(`[JSONPatch{op: "add", path: "/metadata/labels/l%d", value: object.metadata.name}]`, i))
	}},
	{"imagePullPolicy of every container", func(int) string {
		return apply(`Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}`)
	}},
}

func jsonPatch(expression string) string {
	return mutation("JSONPatch", "jsonPatch", expression)
}

func apply(expression string) string {
	return mutation("ApplyConfiguration", "applyConfiguration", expression)
}

func mutation(patchType, member, expression string) string {
	return fmt.Sprintf(`{"patchType": %q, %q: {"expression": %q}}`, patchType, member, expression)
}

// caseFile writes n policies and one Pod in the form of test/cases, so that
// both sides read the very same input.
func caseFile(p policy, n int, object map[string]any, resource, selector string) []byte {
	var b strings.Builder
	b.WriteString("§13: A benchmark.\n\n-- policies.yaml --\n")
	for i := range n {
		fmt.Fprintf(&b, `---
{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": "p%05d"},
 "spec": {"reinvocationPolicy": "Never", "failurePolicy": "Fail",
  "matchConstraints": {%s"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [%q]}]},
  "mutations": [%s]}}
---
{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": "b%05d"},
 "spec": {"policyName": "p%05d"}}
`, i, selector, resource, p.mutation(i), i, i)
	}
	data, err := json.Marshal(object)
	if err != nil {
		panic(err) // plain JSON data encodes
	}
	fmt.Fprintf(&b, "-- request.yaml --\noperation: CREATE\nobject: %s\n", data)
	return []byte(b.String())
}
