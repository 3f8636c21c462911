package policyset

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/policy"
)

func documents(t *testing.T, text string) []*manifest.Document {
	t.Helper()
	var docs []*manifest.Document
	for d, err := range manifest.ReadStream("in.yaml", strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, d)
	}
	return docs
}

const marking = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: mark}
spec:
  reinvocationPolicy: Never
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: |-
        [JSONPatch{op: "add", path: "/metadata/labels", value: {
          "keys": dyn(params).map(k, k).sort().join("."),
          "ns": namespaceObject.metadata.labels["kubernetes.io/metadata.name"]}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: mark}
spec:
  policyName: mark
  paramRef: {name: c, namespace: conf, parameterNotFoundAction: Deny}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: conf}
data: {k: v}
`

// Parameters of built-in kinds have no type, as in a server's informers, and a
// Namespace that was not given is made up and said to be.
func TestBuild(t *testing.T) {
	s, errs := Build(documents(t, marking), Options{})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	d := s.Engine().Admit(t.Context(), &policy.Request{
		Operation: admissionv1.Create, Name: "x", Namespace: "shop",
		Kind:     schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		Object: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "x", "namespace": "shop"},
			"spec": map[string]any{"containers": []any{}}, "status": map[string]any{},
		}},
	})
	if d.Status != nil {
		t.Fatal(d.Status.Message)
	}
	want := map[string]string{"keys": "data.metadata", "ns": "shop"}
	if diff := cmp.Diff(want, d.Object.GetLabels()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"shop"}, s.Namespaces.Synthesised()); diff != "" {
		t.Errorf("made-up namespaces (-want +got):\n%s", diff)
	}
	if s.AuthorizerAsked() {
		t.Error("no policy asked the authorizer")
	}
}

// A policy can read the mutator that it stands for, and the mutator runs as well.
func TestMutatorAsParameter(t *testing.T) {
	s, errs := Build(documents(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: assign.mutations.gatekeeper.sh}
spec:
  group: mutations.gatekeeper.sh
  names: {kind: Assign, plural: assign}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: a}
spec:
  applyTo:
  - {groups: [""], versions: [v1], kinds: [Pod]}
  location: spec.nodeName
  parameters: {assign: {value: n1}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: a}
spec:
  reinvocationPolicy: Never
  paramKind: {apiVersion: mutations.gatekeeper.sh/v1, kind: Assign}
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: |-
        [JSONPatch{op: "add", path: "/spec/hostname", value: params.spec.parameters.assign.value}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: a}
spec:
  policyName: a
  paramRef: {name: a, parameterNotFoundAction: Deny}
`), Options{})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	d := s.Engine().Admit(t.Context(), &policy.Request{
		Operation: admissionv1.Create, Name: "x", Namespace: "shop",
		Kind:     schema.GroupVersionKind{Version: "v1", Kind: "Pod"},
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "pods"},
		Object: &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "x", "namespace": "shop"},
			"spec": map[string]any{"containers": []any{}},
		}},
	})
	if d.Status != nil {
		t.Fatal(d.Status.Message)
	}
	want := map[string]any{"containers": []any{}, "hostname": "n1", "nodeName": "n1"}
	if diff := cmp.Diff(want, d.Object.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

// Every fault of every document is reported, in the order of the file.
func TestBuildErrors(t *testing.T) {
	_, errs := Build(documents(t, strings.Replace(marking, "namespaceObject.metadata", "nameSpaceObject.metadata", 1)+`---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: conf}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: other}
spec: {policyName: mark, paramReff: {}}
`), Options{})
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	want := []string{
		`in.yaml: document 1, line 17, column 17: MutatingAdmissionPolicy mark: spec.mutations[0].jsonPatch.expression: undeclared reference to 'nameSpaceObject' (in container '')`,
		`in.yaml: document 4, line 33, column 18: ConfigMap conf/c is given twice, first in in.yaml: document 3, line 26`,
		`in.yaml: document 5, line 38, column 26: MutatingAdmissionPolicyBinding other: strict decoding error: unknown field "spec.paramReff"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestNamespacesGiven(t *testing.T) {
	s, errs := Build(documents(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {env: prod}}\n"), Options{})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	ns, err := s.Namespaces.Namespace(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"env": "prod", "kubernetes.io/metadata.name": "shop"}
	if diff := cmp.Diff(want, ns.GetLabels()); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if _, err := newParams(s.Types).Get(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, "shop", "none"); !apierrors.IsNotFound(err) {
		t.Errorf("a missing parameter: %v, want NotFound", err)
	}
}
