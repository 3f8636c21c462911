package load

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// MixLabel is a label of the namespaces that the policies of a Mix select. The label TenantLabel
// has the tenant that a namespace belongs to.
const (
	MixLabel    = "mix"
	TenantLabel = "tenant"
)

// MixSettings is the namespace of the parameters of a Mix.
const MixSettings = "mix-settings"

// A Mix describes the policies of a cluster with many teams. They are for several resources, and
// for all namespaces or those of one tenant, and use the usual features of policies. Each sets a
// label of its own or fields of all containers, and does not change its own result again.
type Mix struct {
	Group    string // of package api
	Policies int
	Pods     int // how many of them are for Pods
	Tenants  int
}

// others are the resources of the policies that are not for Pods. They are used in turn.
var others = []struct{ group, resource string }{
	{"apps", "deployments"}, {"apps", "replicasets"}, {"", "configmaps"}, {"batch", "jobs"}, {"", "services"},
	{"batch", "cronjobs"}, {"", "serviceaccounts"}, {"apps", "statefulsets"}, {"networking.k8s.io", "ingresses"}, {"", "persistentvolumeclaims"},
}

// Tenant returns the value of TenantLabel for the i-th tenant, which is also the name of its
// namespace.
func Tenant(i int) string { return fmt.Sprintf("mix-t%03d", i) }

// Context returns the namespaces of a Mix and the parameters of its policies.
func (m Mix) Context() []*unstructured.Unstructured {
	namespace := func(name string, labels map[string]any) *unstructured.Unstructured {
		labels["kubernetes.io/metadata.name"] = name
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name, "labels": labels},
		}}
	}
	all := []*unstructured.Unstructured{
		namespace(MixSettings, map[string]any{}),
		{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "settings", "namespace": MixSettings},
			"data": map[string]any{"value": "yes"},
		}},
	}
	for i := range m.Tenants {
		all = append(all, namespace(Tenant(i), map[string]any{MixLabel: "yes", TenantLabel: Tenant(i)}))
	}
	return all
}

// Objects returns the policies, each followed by its binding.
func (m Mix) Objects() []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for i := range m.Policies {
		if i < m.Pods {
			all = append(all, m.policy(i, "", "pods", []any{"CREATE"})...)
			continue
		}
		o := others[i%len(others)]
		all = append(all, m.policy(i, o.group, o.resource, []any{"CREATE", "UPDATE"})...)
	}
	return all
}

func (m Mix) policy(i int, group, resource string, operations []any) []*unstructured.Unstructured {
	name := fmt.Sprintf("mix-%03d", i)
	namespaces := map[string]any{MixLabel: "yes"}
	if i%4 == 3 {
		namespaces = map[string]any{TenantLabel: Tenant(i / 4 % max(m.Tenants, 1))}
	}
	spec := map[string]any{
		"reinvocationPolicy": "Never", "failurePolicy": "Fail",
		"matchConstraints": map[string]any{
			"namespaceSelector": map[string]any{"matchLabels": namespaces},
			"resourceRules":     []any{map[string]any{"apiGroups": []any{group}, "apiVersions": []any{"v1"}, "operations": operations, "resources": []any{resource}}},
		},
	}
	binding := map[string]any{"policyName": name}
	patchType, member := "ApplyConfiguration", "applyConfiguration"
	expression := fmt.Sprintf(`Object{metadata: Object.metadata{labels: {%q: "yes"}}}`, name)
	switch i % 5 {
	case 1:
		patchType, member = "JSONPatch", "jsonPatch"
		expression = fmt.Sprintf(`has(object.metadata.labels) ? [JSONPatch{op: "add", path: "/metadata/labels/%[1]s", value: "yes"}]`+
			` : [JSONPatch{op: "add", path: "/metadata/labels", value: {%[1]q: "yes"}}]`, name)
	case 2:
		spec["paramKind"] = map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}
		binding["paramRef"] = map[string]any{"name": "settings", "namespace": MixSettings, "parameterNotFoundAction": "Deny"}
		expression = fmt.Sprintf(`Object{metadata: Object.metadata{labels: {%q: params.data.value}}}`, name)
	case 3:
		switch {
		case resource != "pods":
			expression = fmt.Sprintf(`Object{metadata: Object.metadata{annotations: {"mix.example.com/%s": "yes"}}}`, name)
		case i%2 == 0:
			expression = Pull.Expression(i)
		default:
			expression = `Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name,` +
				` securityContext: Object.spec.containers.securityContext{allowPrivilegeEscalation: false}})}}`
		}
	case 4:
		spec["variables"] = []any{map[string]any{"name": "answer", "expression": `object.metadata.?labels.orValue({}).all(k, v, k != "none") ? "yes" : "no"`}}
		spec["matchConditions"] = []any{map[string]any{"name": "people", "expression": `request.userInfo.username != "nobody"`}}
		expression = fmt.Sprintf(`Object{metadata: Object.metadata{labels: {%q: variables.answer}}}`, name)
	}
	spec["mutations"] = []any{map[string]any{"patchType": patchType, member: map[string]any{"expression": expression}}}
	return withBinding(m.Group, name, spec, binding)
}

// Stamp returns a policy that sets the label stamp of Pods to a value, in the namespaces of
// one tenant, and its binding.
func Stamp(group, name, tenant, value string) []*unstructured.Unstructured {
	return withBinding(group, name, map[string]any{
		"reinvocationPolicy": "Never", "failurePolicy": "Fail",
		"matchConstraints": map[string]any{
			"namespaceSelector": map[string]any{"matchLabels": map[string]any{TenantLabel: tenant}},
			"resourceRules":     []any{map[string]any{"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"pods"}}},
		},
		"mutations": []any{map[string]any{"patchType": "ApplyConfiguration", "applyConfiguration": map[string]any{
			"expression": fmt.Sprintf(`Object{metadata: Object.metadata{labels: {"stamp": %q}}}`, value),
		}}},
	}, map[string]any{"policyName": name})
}
