package rewrite

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestPointer(t *testing.T) {
	for _, c := range []struct {
		pointer string
		whole   bool
		want    string
	}{
		{"/spec", true, ""}, {"/spec/x", true, ""}, {"/spec/containers/", false, ""},
		{"/metadata/labels", true, ""}, {"/metadata/annotations/", false, ""}, {"/metadata/finalizers/-", true, ""},
		{"/", false, ""}, {"/sp", false, ""}, {"/metadata/la", false, ""},
		{"", true, "whole Pod"}, {"", false, "whole Pod"}, {"/metadata", true, "all metadata"},
		{"/metadata/name", true, "metadata.name has no effect"}, {"/metadata/ownerReferences/", false, "metadata.ownerReferences has no effect"},
		{"/status/phase", true, "has no status"}, {"/kind", true, "has no kind"},
	} {
		err := pointer(c.pointer, c.whole)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%q, whole %t: error %v, want %q", c.pointer, c.whole, err, c.want)
		}
	}
}

func TestBinding(t *testing.T) {
	const rules = `resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [%s]}]`
	for name, c := range map[string]struct{ match, want string }{
		"namespaces":  {`namespaceSelector: {matchLabels: {a: b}}`, ""},
		"pods":        {strings.Replace(rules, "%s", "pods", 1), ""},
		"other":       {strings.Replace(rules, "%s", "services", 1), "none of the rules is about the creation of Pods"},
		"labels":      {`objectSelector: {matchLabels: {a: b}}`, "move it to the policy"},
		"excludes":    {`exclude` + strings.Replace(strings.Replace(rules, "r", "R", 1), "%s", "pods", 1), "excludes Pods"},
		"excludes no": {`exclude` + strings.Replace(strings.Replace(rules, "r", "R", 1), "%s", "services", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(`{kind: MutatingAdmissionPolicyBinding, metadata: {name: b, uid: u}, spec: {policyName: p, matchResources: {`+c.match+`}}}`), &b.Object); err != nil {
				t.Fatal(err)
			}
			out, err := Binding(b)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %s", err, c.want)
				}
				return
			}
			if err != nil || len(out) != 2 || out[0].GetName() != "b-workloads" || out[1].GetName() != "b-cronjobs" || out[0].GetUID() != "" {
				t.Fatalf("%v, error %v", out, err)
			}
			if name, _, _ := unstructured.NestedString(out[1].Object, "spec", "policyName"); name != "p-cronjobs" {
				t.Errorf("policyName %s", name)
			}
			if _, excludes, _ := unstructured.NestedSlice(out[0].Object, "spec", "matchResources", "excludeResourceRules"); excludes {
				t.Error("workloads may be excluded")
			}
			if b.GetName() != "b" {
				t.Error("the binding was modified")
			}
		})
	}
}
