package bench

import (
	"fmt"
	"strings"
)

// A Case generates policies of one kind, and mutators if Gatekeeper has some with the same effect.
// If possible, each of them changes a field of its own, which depends on its number i.
type Case struct {
	Name string
	// spec returns the spec of the i-th policy without its match constraints. It is nil if
	// Kubernetes has no such policy.
	spec func(o *Object, i int) string
	// params: the bindings have a ConfigMap as their parameter.
	params bool
	// mutator returns the kind and the spec of the i-th mutator.
	mutator func(o *Object, i int) (kind, spec string)
	// want makes the change of the i-th policy to an object.
	want func(o *Object, tree map[string]any, i int)
}

// HasPolicy and HasMutator report whether the case has policies, and mutators.
func (c *Case) HasPolicy() bool  { return c.spec != nil }
func (c *Case) HasMutator() bool { return c.mutator != nil }

// Cases are all cases, in the order of the table.
var Cases = []*Case{
	{
		Name: "label-jsonpatch",
		spec: func(_ *Object, i int) string {
			return jsonPatch(fmt.Sprintf(`[JSONPatch{op: "add", path: "/metadata/labels/l%d", value: "v"}]`, i))
		},
		mutator: assignLabel,
		want:    label("l%d", "v"),
	},
	{
		Name: "label-apply",
		spec: func(_ *Object, i int) string {
			return apply(fmt.Sprintf(`Object{metadata: Object.metadata{labels: {"l%d": "v"}}}`, i))
		},
		want: label("l%d", "v"),
	},
	{
		// A value that has to be looked up for each request.
		Name: "label-name",
		spec: func(_ *Object, i int) string {
			return jsonPatch(fmt.Sprintf(`[JSONPatch{op: "add", path: "/metadata/labels/l%d", value: object.metadata.name}]`, i))
		},
		want: label("l%d", "web"),
	},
	{
		Name: "containers",
		spec: func(o *Object, _ int) string {
			return apply(o.applied(fmt.Sprintf(`containers: object.%s.containers.map(c, %s.containers{name: c.name, imagePullPolicy: "Always"})`,
				dots(o.podSpec), o.typeName())))
		},
		mutator: func(o *Object, _ int) (kind, spec string) {
			return "Assign", assign(o, dots(o.podSpec)+".containers[name: *].imagePullPolicy", "Always")
		},
		want: func(o *Object, tree map[string]any, _ int) {
			for _, c := range o.containers(tree) {
				c.(map[string]any)["imagePullPolicy"] = "Always"
			}
		},
	},
	{
		Name: "sidecar",
		spec: func(o *Object, i int) string {
			t := o.typeName()
			return apply(o.applied(fmt.Sprintf(`containers: [%[1]s.containers{name: "proxy-%[2]d", image: "mesh/proxy:v1",
				env: [%[1]s.containers.env{name: "MODE", value: "sidecar"}, %[1]s.containers.env{name: "ADDRESS", value: "127.0.0.1"}],
				volumeMounts: [%[1]s.containers.volumeMounts{name: "certs-%[2]d", mountPath: "/etc/certs"}, %[1]s.containers.volumeMounts{name: "data", mountPath: "/data"}]}],
				volumes: [%[1]s.volumes{name: "certs-%[2]d", emptyDir: %[1]s.volumes.emptyDir{}}]`, t, i)))
		},
		want: func(o *Object, tree map[string]any, i int) {
			spec, certs := o.spec(tree), fmt.Sprintf("certs-%d", i)
			spec["containers"] = append(o.containers(tree), map[string]any{
				"name": fmt.Sprintf("proxy-%d", i), "image": "mesh/proxy:v1", "resources": map[string]any{},
				"env": []any{map[string]any{"name": "MODE", "value": "sidecar"}, map[string]any{"name": "ADDRESS", "value": "127.0.0.1"}},
				"volumeMounts": []any{map[string]any{"name": certs, "mountPath": "/etc/certs"},
					map[string]any{"name": "data", "mountPath": "/data"}},
			})
			spec["volumes"] = append(spec["volumes"].([]any), map[string]any{"name": certs, "emptyDir": map[string]any{}})
		},
	},
	{
		Name:   "variables",
		params: true,
		spec: func(_ *Object, i int) string {
			return `"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
			"variables": [{"name": "a", "expression": "object.metadata.name"}, {"name": "b", "expression": "variables.a + '-b'"}, {"name": "c", "expression": "params.data.k"}],
			"matchConditions": [{"name": "x", "expression": "has(object.metadata.labels)"}, {"name": "y", "expression": "request.operation == 'CREATE'"}],` +
				jsonPatch(fmt.Sprintf(`[JSONPatch{op: "add", path: "/metadata/labels/l%d", value: variables.b + variables.c}]`, i))
		},
		want: label("l%d", "web-bv"),
	},
	{
		Name:    "assignmetadata",
		mutator: assignLabel,
		want:    label("l%d", "v"),
	},
	{
		Name: "assign",
		mutator: func(o *Object, i int) (kind, spec string) {
			return "Assign", assign(o, fmt.Sprintf("%s.containers[name: *].securityContext.f%d", dots(o.podSpec), i), "v")
		},
		want: func(o *Object, tree map[string]any, i int) {
			for _, c := range o.containers(tree) {
				security, ok := c.(map[string]any)["securityContext"].(map[string]any)
				if !ok {
					security = map[string]any{}
					c.(map[string]any)["securityContext"] = security
				}
				security[fmt.Sprintf("f%d", i)] = "v"
			}
		},
	},
}

// Label is the case for benchmarks that do not depend on what a policy does.
var Label = Cases[0]

// Shapes has policies with twenty different expressions, so that a compiled expression cannot be
// reused for the next policy.
var Shapes = &Case{
	Name: "shapes",
	spec: func(_ *Object, i int) string {
		s := i % 20
		var variables []string
		for v := range 1 + s%4 {
			variables = append(variables, fmt.Sprintf(`{"name": "v%d_%d", "expression": "object.metadata.name + '-%d'"}`, s, v, v))
		}
		return fmt.Sprintf(`"variables": [%s], "matchConditions": [{"name": "x", "expression": "request.name != 'n%d'"}], %s`, strings.Join(variables, ", "), s,
			apply(fmt.Sprintf(`Object{metadata: Object.metadata{labels: {"l%d": variables.v%d_0}}}`, i, s)))
	},
	want: label("l%d", "web-0"),
}

func assignLabel(_ *Object, i int) (kind, spec string) {
	return "AssignMetadata", fmt.Sprintf(`"location": "metadata.labels.l%d", "parameters": {"assign": {"value": "v"}}`, i)
}

func assign(o *Object, location, value string) string {
	return fmt.Sprintf(`"applyTo": [{"groups": [%q], "versions": [%q], "kinds": [%q]}], "location": %q, "parameters": {"assign": {"value": %q}}`,
		o.kind.Group, o.kind.Version, o.kind.Kind, location, value)
}

func label(format, value string) func(*Object, map[string]any, int) {
	return func(_ *Object, tree map[string]any, i int) {
		tree["metadata"].(map[string]any)["labels"].(map[string]any)[fmt.Sprintf(format, i)] = value
	}
}

func jsonPatch(expression string) string {
	return mutation("JSONPatch", "jsonPatch", expression)
}

func apply(expression string) string {
	return mutation("ApplyConfiguration", "applyConfiguration", expression)
}

func mutation(patchType, member, expression string) string {
	return fmt.Sprintf(`"mutations": [{"patchType": %q, %q: {"expression": %q}}]`, patchType, member, expression)
}

func dots(path []string) string { return strings.Join(path, ".") }
