package promote

import (
	"fmt"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/mapd"
)

const exceptedPolicy = `
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: p}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}]}
  matchConditions: %s
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{annotations: {'p': 'p'}}}"}
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: p}
`

// A policy with the conditions that stand for an exception leaves the same objects alone as the
// policy with the exception.
func TestExceptionConditions(t *testing.T) {
	const objects = `
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {age: old}}, spec: {containers: [{name: c, image: i}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: other, labels: {age: new, tier: ""}}, spec: {containers: [{name: c, image: i}]}}
---
{apiVersion: v1, kind: Pod, metadata: {generateName: web-, namespace: shop}, spec: {containers: [{name: c, image: i}]}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: old, namespace: shop, labels: {age: new}}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {age: old}}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: old, labels: {age: old}}, rules: []}
`
	results := func(files ...mapd.File) string {
		t.Helper()
		policies, err := mapd.Load(mapd.Options{}, files...)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for doc, err := range mapd.Read("o.yaml", strings.NewReader(objects)) {
			if err != nil {
				t.Fatal(err)
			}
			r, err := policies.Eval(t.Context(), doc, mapd.RequestOptions{})
			if err != nil || r.Denied() {
				t.Fatal(err, r.Refusal())
			}
			out = append(out, fmt.Sprint(r.Changed()))
		}
		return strings.Join(out, " ")
	}
	all := results(mapd.File{Name: "p.yaml", Data: fmt.Appendf(nil, exceptedPolicy, "[]")})
	for _, tt := range []struct{ namespace, spec, refused string }{
		{"shop", ``, ""},
		{"mapd-system", ``, ""},
		{"mapd-system", `namespaces: [shop]`, ""},
		{"shop", `names: [web, old]`, ""},
		{"shop", `bindings: [b], names: [web]`, ""},
		{"shop", `match: {objectSelector: {matchLabels: {age: old}}}`, ""},
		{"mapd-system", `match: {objectSelector: {matchExpressions: [{key: age, operator: In, values: [old, new]}, {key: tier, operator: Exists}]}}`, ""},
		{"mapd-system", `match: {objectSelector: {matchExpressions: [{key: age, operator: NotIn, values: [old]}, {key: it's, operator: DoesNotExist}]}}`, "invalid"},
		{"mapd-system", `match: {objectSelector: {matchExpressions: [{key: age, operator: NotIn, values: [old]}, {key: example.com/x, operator: DoesNotExist}]}}`, ""},
		{"mapd-system", `match: {objectSelector: {matchLabels: {tier: ""}}}`, ""},
		{"mapd-system", `match: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}, {apiGroups: [apps], apiVersions: [v1], operations: ["*"], resources: [deployments], resourceNames: [old]}]}`, ""},
		{"mapd-system", `match: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [UPDATE], resources: [pods]}]}`, ""},
		{"mapd-system", `match: {matchPolicy: Exact, resourceRules: [{apiGroups: ["apps"], apiVersions: [v1beta1], operations: [CREATE], resources: [deployments]}]}`, ""},
		{"mapd-system", `match: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods/status]}]}`, ""},
		{"shop", `until: "2999-01-01T00:00:00Z"`, "expressions of a server know no time"},
		{"shop", `from: "2998-01-01T00:00:00Z"`, "it has not begun"},
		{"shop", `bindings: [other]`, "it is for some bindings of the policy"},
		{"mapd-system", `match: {namespaceSelector: {matchLabels: {a: b}}}`, "it selects namespaces by labels"},
		{"shop", `match: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: ["*"]}]}`, "only resources by name can be said"},
		{"shop", `match: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods], scope: Namespaced}]}`, "it has a scope"},
		{"shop", `match: {excludeResourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}`, "it has excludeResourceRules"},
	} {
		text := fmt.Sprintf("{apiVersion: mapd.dev/v1alpha1, kind: PolicyException, metadata: {name: x, namespace: %s}, spec: {policies: [p], reason: r, %s}}", tt.namespace, tt.spec)
		u := unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		data, err := api.JSON(&u)
		if err != nil {
			t.Fatal(err)
		}
		e, err := api.DecodeException(data, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := excepted([]unstructured.Unstructured{u}, "p", []string{"b"}, api.ExceptionRules{Endless: true}, time.Now()); len(got.Conditions)+len(got.Unsaid) != 0 {
			t.Errorf("%s: nobody has allowed it: %v", tt.spec, got)
		}
		u.Object["status"] = map[string]any{"allowed": map[string]any{"digest": e.Spec.Digest()}}
		got := excepted([]unstructured.Unstructured{u}, "p", []string{"b"}, api.ExceptionRules{Endless: true}, time.Now())
		if tt.refused == "invalid" {
			if len(got.Conditions)+len(got.Unsaid) != 0 {
				t.Errorf("%s is not valid, and becomes %v", tt.spec, got)
			}
			continue
		}
		if tt.refused != "" {
			if len(got.Conditions) != 0 || len(got.Unsaid) != 1 || !strings.Contains(got.Unsaid[0], tt.refused) {
				t.Errorf("%s: %v, want to be refused: %s", tt.spec, got, tt.refused)
			}
			continue
		}
		if len(got.Conditions) != 1 || len(got.Unsaid) != 0 {
			t.Errorf("%s: %v", tt.spec, got)
			continue
		}
		conditions, err := yaml.Marshal(got.Conditions)
		if err != nil {
			t.Fatal(err)
		}
		indented := "\n  - " + strings.ReplaceAll(strings.TrimPrefix(strings.TrimSpace(string(conditions)), "- "), "\n", "\n  ")
		want := results(mapd.File{Name: "p.yaml", Data: fmt.Appendf(nil, exceptedPolicy, "[]")}, mapd.File{Name: "x.yaml", Data: []byte(text)})
		if is := results(mapd.File{Name: "p.yaml", Data: fmt.Appendf(nil, exceptedPolicy, indented)}); is != want {
			t.Errorf("%s: changed %s, want %s: %s", tt.spec, is, want, got.Conditions[0].Expression)
		}
	}
	if !strings.HasPrefix(all, "true") || strings.Contains(all, "false") {
		t.Errorf("the policy alone changes %s", all)
	}
}

// An exception in the namespace of mapd is for objects of all, wherever mapd is installed.
func TestExceptionsOfInstallation(t *testing.T) {
	u := unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "mapd.dev/v1alpha1", "kind": "PolicyException", "metadata": map[string]any{"name": "x", "namespace": "policies"},
		"spec": map[string]any{"policies": []any{"p"}, "namespaces": []any{"shop"}, "reason": "r"},
	}}
	data, err := api.JSON(&u)
	if err != nil {
		t.Fatal(err)
	}
	e, err := api.DecodeException(data, "")
	if err != nil {
		t.Fatal(err)
	}
	u.Object["status"] = map[string]any{"allowed": map[string]any{"digest": e.Spec.Digest()}}
	list := []unstructured.Unstructured{u}
	got := excepted(list, "p", nil, api.ExceptionRules{Own: "policies", Endless: true}, time.Now())
	if len(got.Unsaid) != 0 || len(got.Conditions) != 1 || !strings.Contains(got.Conditions[0].Expression, "shop") {
		t.Errorf("of the namespace of mapd: %v", got)
	}
	if got := excepted(list, "p", nil, api.ExceptionRules{Endless: true}, time.Now()); len(got.Conditions)+len(got.Unsaid) != 0 {
		t.Errorf("of another namespace, for which it is not valid: %v", got)
	}
}

// The matchConditions that a policy gets for exceptions are removed when it moves back.
func TestConditionsComeAndGo(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"matchConditions": []any{map[string]any{"name": "own", "expression": "true"}}}}}
	before := u.DeepCopy()
	list := []unstructured.Unstructured{{Object: map[string]any{}}}
	if got := excepted(list, "p", nil, api.ExceptionRules{Endless: true}, time.Now()); len(got.Conditions)+len(got.Unsaid) != 0 {
		t.Errorf("of what is no exception: %v", got)
	}
	withConditions(u, []admissionregistrationv1.MatchCondition{{Name: "mapd-exception-1", Expression: "false"}})
	if n, _, _ := unstructured.NestedSlice(u.Object, "spec", "matchConditions"); len(n) != 2 {
		t.Errorf("with its exception: %v", u.Object)
	}
	withoutConditions(u, []string{"mapd-exception-1"})
	if fmt.Sprint(u.Object) != fmt.Sprint(before.Object) {
		t.Errorf("came back as %v", u.Object)
	}
}
