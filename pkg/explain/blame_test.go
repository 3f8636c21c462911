package explain_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/pkg/mapd"
)

// Two policies write one label, one removes an annotation, and a sidecar is put before
// a container whose image a mutator sets.
const blamed = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: a}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'owner': 'a', 'team': 'red'}}}"}
  - patchType: JSONPatch
    jsonPatch:
      expression: >-
        [JSONPatch{op: 'add', path: '/spec/containers/0', value: {'name': 'side', 'image': 's'}},
        JSONPatch{op: 'remove', path: '/metadata/annotations/old'}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: b}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'owner': 'b'}}}"}
---
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: m}
spec:
  applyTo: [{groups: [""], versions: [v1], kinds: [Pod]}]
  location: "spec.containers[name: app].imagePullPolicy"
  parameters: {assign: {value: Never}}
`

func TestBlame(t *testing.T) {
	policies, err := mapd.Load(mapd.Options{Unbound: true}, mapd.File{Name: "p.yaml", Data: []byte(blamed)})
	if err != nil {
		t.Fatal(err)
	}
	const object = `{apiVersion: v1, kind: Pod, metadata: {name: web, labels: {app: x}, annotations: {old: "1", kept: "2"}}, spec: {containers: [{name: app, image: i}, {name: log, image: l}]}}`
	for doc, err := range mapd.Read("o.yaml", strings.NewReader(object)) {
		if err != nil {
			t.Fatal(err)
		}
		r, err := policies.Eval(t.Context(), doc, mapd.RequestOptions{})
		if err != nil {
			t.Fatal(err)
		}
		const want = `apiVersion: v1
kind: Pod
metadata:
  annotations:
    kept: "2"
    # old removed: a › unbound-a › mutations[1]
  labels:
    app: x
    owner: b  # a › unbound-a › mutations[0], then b › unbound-b › mutations[0]
    team: red  # a › unbound-a › mutations[0]
  name: web
spec:
  containers:
  -  # a › unbound-a › mutations[1]
    image: s
    name: side
    resources: {}
  - image: i
    imagePullPolicy: Never  # Assign/m
    name: app
  - image: l
    name: log
`
		if diff := cmp.Diff(want, r.BlameText()); diff != "" {
			t.Error(diff)
		}
	}
}
