package explain_test

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/pkg/mapd"
)

const rule = `{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}`

// written returns a policy with matchConstraints and a binding with a spec besides
// policyName, none for "none".
func written(constraints, binding string) string {
	text := `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: p}
spec:
  reinvocationPolicy: Never
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints: ` + constraints + `
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'owner': 'shop'}}}"}
`
	if binding != "none" {
		text += `---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: p` + binding + `}
`
	}
	return text
}

func mutator(spec string) string {
	return `
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: m}
spec:
  location: spec.nodeName
  parameters: {assign: {value: {value: x}}}
  applyTo: [{groups: [""], versions: [v1], kinds: [Pod]}]
  ` + spec + "\n"
}

const (
	pod        = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop, labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}"
	deployment = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}}"
	namespace  = "---\n{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {env: dev}}}\n"
)

func TestWhyNot(t *testing.T) {
	constraints := func(rule string) string { return "{resourceRules: [" + rule + "]}" }
	at := "spec.matchConstraints.resourceRules[0]."
	for _, test := range []struct{ name, documents, object, want string }{
		{"match", written(constraints(rule), ""), pod, ""},
		{"unbound", written(constraints(rule), "none"), pod, "p: no binding names it"},
		{"kind for resource", written(constraints(strings.Replace(rule, "pods", "Pod", 1)), ""), pod, "p: " + at + "resources [Pod] names no resource of v1; did you mean pods?"},
		{"misspelt", written(constraints(strings.Replace(rule, "pods", "podss", 1)), ""), pod, "p: " + at + "resources [podss] names no resource of v1; did you mean pods?"},
		{"wrong group", written(constraints(strings.Replace(rule, "pods", "deployments", 1)), ""), deployment, "p: " + at + "resources [deployments] names no resource of v1; deployments are of apps/v1"},
		{"other resource", written(constraints(strings.Replace(rule, "pods", "secrets", 1)), ""), pod, "p: " + at + "resources [secrets]; the request is for pods"},
		{"Pods of a workload", written(constraints(rule), ""), deployment, "p: " + at + `apiGroups [""]; the request is for deployments.apps, whose Pods are requests of their own`},
		{"version", written(`{matchPolicy: Exact, resourceRules: [{apiGroups: [apps], apiVersions: [v2], operations: [CREATE], resources: ["*"]}]}`, ""), deployment, "p: " + at + "apiVersions [v2]; the request is for v1"},
		{"operation", written(constraints(strings.Replace(rule, "CREATE", "UPDATE, CONNECT", 1)), ""), pod, "p: " + at + "operations [UPDATE, CONNECT]; the request is CREATE"},
		{"scope", written(constraints(strings.Replace(rule, "{", "{scope: Cluster, ", 1)), ""), pod, "p: " + at + "scope Cluster; the request is about a namespaced object"},
		{"name", written(constraints(strings.Replace(rule, "{", "{resourceNames: [x], ", 1)), ""), pod, "p: " + at + "resourceNames [x]; the request has name web"},
		{"the nearer rule", written(constraints(strings.Replace(rule, "pods", "secrets", 1)+", "+strings.Replace(rule, "CREATE", "UPDATE", 1)), ""), pod, "p: spec.matchConstraints.resourceRules[1].operations [UPDATE]; the request is CREATE"},
		{"excluded", written("{excludeResourceRules: ["+rule+"], resourceRules: ["+rule+"]}", ""), pod, "p: spec.matchConstraints.excludeResourceRules[0] excludes pods"},
		{"namespace", written("{namespaceSelector: {matchLabels: {env: prod}}, resourceRules: ["+rule+"]}", "") + namespace, pod, "p: spec.matchConstraints.namespaceSelector env=prod; Namespace shop has env=dev"},
		{"binding's namespace", written(constraints(rule), ", matchResources: {namespaceSelector: {matchLabels: {env: prod}}}"), pod, "p › b: spec.matchResources.namespaceSelector env=prod; Namespace shop has no label env"},
		{"object", written("{objectSelector: {matchExpressions: [{key: app, operator: NotIn, values: [a]}]}, resourceRules: ["+rule+"]}", ""), pod, "p: spec.matchConstraints.objectSelector app notin (a); the object has app=a"},
		{"param", written(constraints(rule), ", paramRef: {name: limits, parameterNotFoundAction: Allow}"), pod, "p › b: spec.paramRef finds no ConfigMap limits in namespace shop, and parameterNotFoundAction is Allow"},
		{"params", written(constraints(rule), ", paramRef: {selector: {matchLabels: {a: b}}, parameterNotFoundAction: Allow}"), pod, "p › b: spec.paramRef selects no ConfigMap in namespace shop, and parameterNotFoundAction is Allow"},
		{"mutator matches", mutator(""), pod, ""},
		{"mutator's kind", mutator(""), deployment, `Assign/m: spec.applyTo [Pod] of groups [""], versions [v1]; the object is a Deployment of apps/v1`},
		{"mutator's operation", strings.Replace(mutator(""), "kinds: [Pod]", "kinds: [Pod], operations: [UPDATE]", 1), pod, `Assign/m: spec.applyTo [Pod] of groups [""], versions [v1], operations [UPDATE]; the operation is CREATE`},
		{"mutator's namespaces", mutator("match: {namespaces: [kube-*]}"), pod, "Assign/m: spec.match.namespaces [kube-*]; the object is in namespace shop"},
		{"mutator's exclusion", mutator("match: {excludedNamespaces: [shop]}"), pod, "Assign/m: spec.match.excludedNamespaces [shop] includes namespace shop"},
		{"mutator's labels", mutator("match: {labelSelector: {matchLabels: {app: b}}}"), pod, "Assign/m: spec.match.labelSelector app=b; the object has app=a"},
		{"mutator's Namespace", mutator("match: {namespaceSelector: {matchLabels: {env: prod}}}") + namespace, pod, "Assign/m: spec.match.namespaceSelector env=prod; Namespace shop has env=dev"},
		{"mutator's scope", mutator("match: {scope: Cluster}"), pod, "Assign/m: spec.match.scope Cluster; the object is namespaced"},
		{"mutator's name", mutator("match: {name: x*}"), pod, "Assign/m: spec.match.name x*; the object has name web"},
		{"mutator's Config", mutator("") + "---\n{apiVersion: config.gatekeeper.sh/v1alpha1, kind: Config, metadata: {name: config, namespace: gatekeeper-system}, spec: {match: [{excludedNamespaces: [shop], processes: ['*']}]}}\n", pod, "Assign/m: Gatekeeper's Config excludes the namespace"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := whyNot(t, test.documents, test.object); got != test.want {
				t.Error(cmp.Diff(test.want, got))
			}
		})
	}
}

func whyNot(t *testing.T, documents, object string) string {
	t.Helper()
	policies, err := mapd.Load(mapd.Options{}, mapd.File{Name: "p.yaml", Data: []byte(documents)})
	if err != nil {
		t.Fatal(err)
	}
	var reasons []string
	for doc, err := range mapd.Read("o.yaml", strings.NewReader(object)) {
		if err != nil {
			t.Fatal(err)
		}
		r, err := policies.Eval(t.Context(), doc, mapd.RequestOptions{Operation: admissionv1.Create})
		if err != nil {
			t.Fatal(err)
		}
		met := len(r.Decision.Steps) > 0
		for reason := range r.WhyNot(t.Context()) {
			reasons = append(reasons, fmt.Sprint(reason))
		}
		if met == (len(reasons) > 0) {
			t.Errorf("met: %v, and reasons %q", met, reasons)
		}
	}
	return strings.Join(reasons, "\n")
}
