package rbac

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"sigs.k8s.io/yaml"
)

const objects = `
- kind: ClusterRole
  metadata: {name: view, labels: {agg: "yes"}}
  rules:
  - {apiGroups: [""], resources: [pods, pods/log], verbs: [get, list]}
  - {nonResourceURLs: [/healthz, /metrics/*], verbs: [get]}
- kind: ClusterRole
  metadata: {name: scale, labels: {agg: "yes"}}
  rules:
  - {apiGroups: ["*"], resources: ["*/scale"], verbs: ["*"]}
- kind: ClusterRole
  metadata: {name: all-of-it, labels: {agg: "yes"}}
  aggregationRule: {clusterRoleSelectors: [{matchLabels: {agg: "yes"}}]}
  rules: []
- kind: ClusterRole
  metadata: {name: admin}
  rules: [{apiGroups: ["*"], resources: ["*"], verbs: ["*"]}]
- kind: Role
  metadata: {name: one, namespace: shop}
  rules: [{apiGroups: [apps], resources: [deployments], resourceNames: [web], verbs: [update]}]
- kind: ClusterRoleBinding
  metadata: {name: viewers}
  roleRef: {kind: ClusterRole, name: view}
  subjects: [{kind: Group, name: dev}]
- kind: ClusterRoleBinding
  metadata: {name: aggregated}
  roleRef: {kind: ClusterRole, name: all-of-it}
  subjects: [{kind: User, name: ann}]
- kind: RoleBinding
  metadata: {name: local, namespace: shop}
  roleRef: {kind: Role, name: one}
  subjects: [{kind: ServiceAccount, name: bot}, {kind: ServiceAccount, name: far, namespace: other}]
- kind: RoleBinding
  metadata: {name: admins, namespace: shop}
  roleRef: {kind: ClusterRole, name: admin}
  subjects: [{kind: User, name: root}]
- kind: RoleBinding
  metadata: {name: dangling, namespace: shop}
  roleRef: {kind: Role, name: gone}
  subjects: [{kind: User, name: lost}]
`

func load(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var list []map[string]any
	if err := yaml.Unmarshal([]byte(text), &list); err != nil {
		t.Fatal(err)
	}
	var objs []*unstructured.Unstructured
	for _, m := range list {
		m["apiVersion"] = "rbac.authorization.k8s.io/v1"
		objs = append(objs, &unstructured.Unstructured{Object: m})
	}
	return objs
}

func TestAuthorize(t *testing.T) {
	a, err := New(load(t, objects)...)
	if err != nil {
		t.Fatal(err)
	}
	res := func(verb, ns, group, resource, sub, name string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: verb, Namespace: ns, APIGroup: group, Resource: resource, Subresource: sub, Name: name, ResourceRequest: true}
	}
	url := func(verb, path string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: verb, Path: path}
	}
	dev := &user.DefaultInfo{Name: "d", Groups: []string{"dev"}}
	named := func(name string) *user.DefaultInfo { return &user.DefaultInfo{Name: name} }
	tests := []struct {
		name  string
		user  user.Info
		attrs authorizer.AttributesRecord
		allow bool
		text  string
	}{
		{"group, any namespace", dev, res("get", "x", "", "pods", "", "p"), true, `RBAC: allowed by ClusterRoleBinding "viewers" of ClusterRole "view" to Group "dev"`},
		{"subresource by name", dev, res("get", "x", "", "pods", "log", ""), true, `RBAC: allowed by ClusterRoleBinding "viewers" of ClusterRole "view" to Group "dev"`},
		{"other subresource", dev, res("get", "x", "", "pods", "status", ""), false, ""},
		{"other verb", dev, res("create", "x", "", "pods", "", ""), false, ""},
		{"other group", dev, res("get", "x", "apps", "pods", "", ""), false, ""},
		{"url", dev, url("get", "/healthz"), true, `RBAC: allowed by ClusterRoleBinding "viewers" of ClusterRole "view" to Group "dev"`},
		{"url below", dev, url("get", "/metrics/cadvisor"), true, `RBAC: allowed by ClusterRoleBinding "viewers" of ClusterRole "view" to Group "dev"`},
		{"other url", dev, url("get", "/version"), false, ""},
		{"aggregated, any scale", named("ann"), res("patch", "x", "apps", "deployments", "scale", "w"), true, `RBAC: allowed by ClusterRoleBinding "aggregated" of ClusterRole "all-of-it" to User "ann"`},
		{"*/scale is no main resource", named("ann"), res("patch", "x", "apps", "deployments", "", "w"), false, ""},
		{"service account of the binding's namespace", named("system:serviceaccount:shop:bot"), res("update", "shop", "apps", "deployments", "", "web"), true, `RBAC: allowed by RoleBinding "local/shop" of Role "one" to ServiceAccount "bot/shop"`},
		{"service account of another", named("system:serviceaccount:other:far"), res("update", "shop", "apps", "deployments", "", "web"), true, `RBAC: allowed by RoleBinding "local/shop" of Role "one" to ServiceAccount "far/other"`},
		{"other name", named("system:serviceaccount:shop:bot"), res("update", "shop", "apps", "deployments", "", "api"), false, ""},
		{"other namespace", named("system:serviceaccount:shop:bot"), res("update", "x", "apps", "deployments", "", "web"), false, ""},
		{"cluster role in one namespace", named("root"), res("delete", "shop", "apps", "deployments", "scale", ""), true, `RBAC: allowed by RoleBinding "admins/shop" of ClusterRole "admin" to User "root"`},
		{"and not cluster-wide", named("root"), res("delete", "", "", "nodes", "", ""), false, ""},
		{"dangling", named("lost"), res("get", "shop", "", "pods", "", ""), false, `RBAC: role.rbac.authorization.k8s.io "gone" not found`},
		{"system:masters is only a group", &user.DefaultInfo{Name: "x", Groups: []string{user.SystemPrivilegedGroup}}, res("get", "x", "", "pods", "", ""), false, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.attrs.User = tt.user
			got, text, err := a.Authorize(t.Context(), tt.attrs)
			want := authorizer.DecisionNoOpinion
			if tt.allow {
				want = authorizer.DecisionAllow
			}
			if got != want || text != tt.text || err != nil {
				t.Errorf("got %v, %q, %v; want %v, %q", got, text, err, want, tt.text)
			}
		})
	}
}

func TestNewNamesWhatDoesNotDecode(t *testing.T) {
	_, err := New(load(t, "- {kind: Role, metadata: {name: r}, rules: [{verb: [get]}]}")...)
	if err == nil || err.Error() != `Role "r": strict decoding error: unknown field "rules[0].verb"` {
		t.Errorf("got %v", err)
	}
}
