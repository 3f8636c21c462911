package legacy

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestWildcard(t *testing.T) {
	tests := []struct {
		pattern, name string
		want, prefix  bool // as a name, as a generateName
	}{
		{"web", "web", true, false},
		{"web", "web-1", false, false},
		{"", "", true, false},
		{"", "web", false, false},
		{"web-*", "web-1", true, true},
		{"web-*", "a-web-1", false, false},
		{"*-web", "a-web", true, false},
		{"*-web", "a-web-", false, false},
		{"*web*", "a-web-1", true, true},
		{"*web*", "a-wob-1", false, false},
		{"*", "web", true, true},
		{"*", "", true, true},
		{"**", "web", true, true},
		{"***", "web", false, false},
		{"***", "a*b", true, true},
		{"w*b", "web", false, false},
		{"w*b", "w*b", true, false},
	}
	for _, tt := range tests {
		if got := Wildcard(tt.pattern, tt.name); got != tt.want {
			t.Errorf("Wildcard(%q, %q) = %v", tt.pattern, tt.name, got)
		}
		if got := WildcardPrefix(tt.pattern, tt.name); got != tt.prefix {
			t.Errorf("WildcardPrefix(%q, %q) = %v", tt.pattern, tt.name, got)
		}
	}
}

func TestAppliesTo(t *testing.T) {
	const (
		assign = "location: a\nparameters: {assign: {value: x}}\n"
		label  = "location: metadata.labels.a\nparameters: {assign: {value: x}}\n"
	)
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	deployment := schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}
	tests := []struct {
		name string
		kind Kind
		spec string
		gvk  schema.GroupVersionKind
		// for CREATE, UPDATE, "" and DELETE
		want [4]bool
	}{
		{"all operations", Assign, assign + pods, pod, [4]bool{true, true, true, false}},
		{"another kind", Assign, assign + pods, deployment, [4]bool{}},
		{"another version", Assign, assign + pods, schema.GroupVersionKind{Version: "v2", Kind: "Pod"}, [4]bool{}},
		{"star is literal", Assign, assign + "applyTo: [{groups: ['*'], versions: ['*'], kinds: ['*']}]", pod, [4]bool{}},
		{"one operation", Assign, assign + "applyTo: [{groups: [''], versions: [v1], kinds: [Pod], operations: [UPDATE]}]", pod, [4]bool{false, true, false, false}},
		{"both operations", Assign, assign + "applyTo: [{groups: [''], versions: [v1], kinds: [Pod], operations: [UPDATE, CREATE]}]", pod, [4]bool{true, true, true, false}},
		{"star for operations", Assign, assign + "applyTo: [{groups: [''], versions: [v1], kinds: [Pod], operations: ['*']}]", pod, [4]bool{true, true, true, false}},
		{"an entry is asked as a whole", Assign,
			assign + "applyTo: [{groups: [''], versions: [v1], kinds: [Pod], operations: [CREATE]}, {groups: [apps], versions: [v1], kinds: [Deployment], operations: [UPDATE]}]",
			pod, [4]bool{true, false, false, false}},
		{"two entries are not one for both", Assign,
			assign + "applyTo: [{groups: [''], versions: [v1], kinds: [Pod], operations: [CREATE]}, {groups: [''], versions: [v1], kinds: [Pod], operations: [UPDATE]}]",
			pod, [4]bool{true, true, false, false}},
		{"kinds narrow", Assign, assign + pods + "\nmatch: {kinds: [{apiGroups: [''], kinds: [Service]}]}", pod, [4]bool{}},
		{"kinds with stars", Assign, assign + pods + "\nmatch: {kinds: [{apiGroups: [apps]}, {apiGroups: ['*'], kinds: ['*', x]}]}", pod, [4]bool{true, true, true, false}},
		{"labels are for all", AssignMetadata, label, deployment, [4]bool{true, true, true, true}},
		{"labels, narrowed", AssignMetadata, label + "match: {kinds: [{kinds: [Pod]}]}", deployment, [4]bool{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := mustDecode(t, tt.kind, "a", tt.spec)
			for i, op := range []string{"CREATE", "UPDATE", "", "DELETE"} {
				if got := m.AppliesTo(tt.gvk, op); got != tt.want[i] {
					t.Errorf("AppliesTo(%s, %q) = %v", tt.gvk, op, got)
				}
			}
		})
	}
}

func TestConfig(t *testing.T) {
	u := cr(t, Assign, "config", `
match:
- {excludedNamespaces: ['kube-*', exact], processes: [mutation-webhook, audit]}
- {excludedNamespaces: [everywhere], processes: ['*']}
- {excludedNamespaces: ['**'], processes: [other]}
sync: {syncOnly: []}
`)
	c, err := DecodeConfig(u)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		process, namespace string
		want               bool
	}{
		{"mutation-webhook", "kube-system", true},
		{"mutation-webhook", "exact", true},
		{"mutation-webhook", "exactly", false},
		{"mutation-webhook", "everywhere", true},
		{"mutation-webhook", "", false},
		{"webhook", "kube-system", false},
		{"webhook", "everywhere", true},
		{"other", "everywhere", true},
		{"other", "", true},
	}
	for _, tt := range tests {
		if got := c.Excludes(tt.process, tt.namespace); got != tt.want {
			t.Errorf("Excludes(%q, %q) = %v", tt.process, tt.namespace, got)
		}
	}
	if (*Config)(nil).Excludes("mutation-webhook", "a") {
		t.Error("no Config excludes something")
	}

	u.SetName("other")
	if _, err := DecodeConfig(u); err == nil || err.Error() != "Config/other: metadata.name: config resource must have name 'config'" {
		t.Errorf("another name: error = %v", err)
	}
	_, err = DecodeConfig(cr(t, Assign, "config", "match: [{processes: webhook}]"))
	if err == nil || err.Error() != "Config/config: spec.match[0].processes: expected a list, got a string" {
		t.Errorf("a string for a list: error = %v", err)
	}
}
