// What a first visit shows.
import type {State} from "./state"

export const example: State = {
  documents: [{
    name: "policy.yaml",
    text: `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata:
  name: team-defaults
spec:
  reinvocationPolicy: IfNeeded
  matchConstraints:
    resourceRules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: [CREATE]
      resources: [pods]
  matchConditions:
  - name: no-team-yet
    expression: "!('team' in object.metadata.?labels.orValue({}))"
  variables:
  - name: team
    expression: namespaceObject.metadata.labels[?'team'].orValue('nobody')
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >
        Object{
          metadata: Object.metadata{
            labels: {"team": variables.team}
          }
        }
  - patchType: JSONPatch
    jsonPatch:
      expression: >
        [
          JSONPatch{
            op: "add",
            path: "/metadata/labels/" + jsonpatch.escapeKey("example.com/registry"),
            value: object.spec.containers[0].image.split("/")[?0].orValue("")
          }
        ]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata:
  name: team-defaults
spec:
  policyName: team-defaults
`,
  }, {
    name: "namespace.yaml",
    text: `apiVersion: v1
kind: Namespace
metadata:
  name: shop
  labels:
    team: checkout
`,
  }],
  objects: [{
    name: "pod.yaml",
    text: `apiVersion: v1
kind: Pod
metadata:
  name: web
  namespace: shop
spec:
  containers:
  - name: app
    image: registry.example.com/web:1.4 # comments stay
`,
  }],
}
