package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// pod returns a Pod as an API server would send it: defaulted, and with the
// managed fields of the client that made it.
func pod(containers, env int) map[string]any {
	var cs []any
	for i := range containers {
		c := map[string]any{
			"name":  fmt.Sprintf("c%d", i),
			"image": fmt.Sprintf("registry.example.com/team/app-%d:v1.%d", i, i),
			"ports": []any{map[string]any{"containerPort": int64(8080 + i), "name": "http", "protocol": "TCP"}},
			"resources": map[string]any{
				"limits":   map[string]any{"cpu": "500m", "memory": "256Mi"},
				"requests": map[string]any{"cpu": "100m", "memory": "128Mi"},
			},
			"imagePullPolicy":          "IfNotPresent",
			"terminationMessagePath":   "/dev/termination-log",
			"terminationMessagePolicy": "File",
			"volumeMounts":             []any{map[string]any{"mountPath": "/var/run/data", "name": "data"}},
		}
		var vars []any
		for j := range env {
			vars = append(vars, map[string]any{"name": fmt.Sprintf("SETTING_%02d", j),
				"value": fmt.Sprintf("value of setting %d of container %d", j, i)})
		}
		if vars != nil {
			c["env"] = vars
		}
		cs = append(cs, c)
	}
	spec := map[string]any{
		"containers":                    cs,
		"dnsPolicy":                     "ClusterFirst",
		"enableServiceLinks":            true,
		"restartPolicy":                 "Always",
		"schedulerName":                 "default-scheduler",
		"securityContext":               map[string]any{},
		"serviceAccount":                "default",
		"serviceAccountName":            "default",
		"terminationGracePeriodSeconds": int64(30),
		"volumes":                       []any{map[string]any{"name": "data", "emptyDir": map[string]any{}}},
	}
	labels := map[string]any{"app": "web", "tier": "front"}
	return map[string]any{
		"apiVersion": "v1",
		"kind":       "Pod",
		"metadata": map[string]any{
			"name":      "web",
			"namespace": "default",
			"labels":    labels,
			"managedFields": []any{map[string]any{
				"apiVersion": "v1",
				"fieldsType": "FieldsV1",
				"fieldsV1":   map[string]any{"f:metadata": fields(map[string]any{"labels": labels}), "f:spec": fields(spec)},
				"manager":    "kubectl-create",
				"operation":  "Update",
				"time":       "2026-01-02T03:04:05Z",
			}},
		},
		"spec":   spec,
		"status": map[string]any{"phase": "Pending", "qosClass": "Burstable"},
	}
}

// fields is the set of fields that somebody who wrote v owns.
func fields(v any) any {
	out := map[string]any{}
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			out["f:"+k] = fields(x)
		}
	case []any:
		for _, x := range v {
			m, _ := x.(map[string]any)
			key := "."
			if name, ok := m["name"].(string); ok {
				key = fmt.Sprintf("k:{%q:%q}", "name", name)
			}
			out[key] = fields(x)
		}
	}
	return out
}

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
