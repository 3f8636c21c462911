package load

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// PolicyLabel is a label of all policies and bindings of this package.
const PolicyLabel = "load"

// Kind is a kind of policy to measure.
type Kind struct {
	Name       string
	PatchType  string
	Expression func(i int) string
	// Done returns an error unless n policies of this kind have changed a Pod as they should.
	Done func(pod *unstructured.Unstructured, n int) error
}

// Label is the kind whose i-th policy adds the i-th label.
var Label = Kind{
	Name: "label", PatchType: "JSONPatch",
	Expression: func(i int) string {
		return fmt.Sprintf(`[JSONPatch{op: "add", path: "/metadata/labels/l%d", value: "v"}]`, i)
	},
	Done: func(pod *unstructured.Unstructured, n int) error {
		for i := range n {
			if got := pod.GetLabels()[fmt.Sprintf("l%d", i)]; got != "v" {
				return fmt.Errorf("label l%d is %q", i, got)
			}
		}
		// The Pod has two labels of its own.
		if got := len(pod.GetLabels()); got != n+2 {
			return fmt.Errorf("%d labels, want %d", got, n+2)
		}
		return nil
	},
}

// Pull is the kind whose policies each set a field of every container.
var Pull = Kind{
	Name: "container field", PatchType: "ApplyConfiguration",
	Expression: func(int) string {
		return `Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}`
	},
	Done: func(pod *unstructured.Unstructured, n int) error {
		containers, _, err := unstructured.NestedSlice(pod.Object, "spec", "containers")
		if err != nil {
			return err
		}
		want := "IfNotPresent"
		if n > 0 {
			want = "Always"
		}
		for _, c := range containers {
			if got := c.(map[string]any)["imagePullPolicy"]; got != want {
				return fmt.Errorf("imagePullPolicy %v, want %s", got, want)
			}
		}
		return nil
	},
}

// Policy returns the i-th policy of a kind and its binding, in an API group.
func Policy(group string, k Kind, i int) []*unstructured.Unstructured {
	return policy(group, k, i, "pods", "")
}

// OtherPolicy returns a policy that matches no Pod in the namespace default, and its binding: if i
// is even, it is for another resource, else for another namespace.
func OtherPolicy(group string, k Kind, i int) []*unstructured.Unstructured {
	if i%2 == 0 {
		return policy(group, k, i, "configmaps", "")
	}
	return policy(group, k, i, "pods", "other")
}

func policy(group string, k Kind, i int, resource, namespace string) []*unstructured.Unstructured {
	name := fmt.Sprintf("load-%05d", i)
	constraints := map[string]any{"resourceRules": []any{map[string]any{
		"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{resource},
	}}}
	if namespace != "" {
		constraints["namespaceSelector"] = map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": namespace}}
	}
	mutation := map[string]any{"patchType": k.PatchType}
	member := map[string]string{"JSONPatch": "jsonPatch", "ApplyConfiguration": "applyConfiguration"}[k.PatchType]
	mutation[member] = map[string]any{"expression": k.Expression(i)}
	return withBinding(group, name, map[string]any{
		"reinvocationPolicy": "Never", "failurePolicy": "Fail", "matchConstraints": constraints, "mutations": []any{mutation},
	}, map[string]any{"policyName": name})
}

// withBinding returns a policy and a binding of the same name.
func withBinding(group, name string, spec, binding map[string]any) []*unstructured.Unstructured {
	object := func(kind string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/v1", "kind": kind,
			"metadata": map[string]any{"name": name, "labels": map[string]any{PolicyLabel: "yes"}},
			"spec":     spec,
		}}
	}
	return []*unstructured.Unstructured{object("MutatingAdmissionPolicy", spec), object("MutatingAdmissionPolicyBinding", binding)}
}
