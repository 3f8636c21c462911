package mapd_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mapd-project/mapd/pkg/mapd"
)

// A quantity whose power of ten has a billion digits comes by many ways. None takes longer
// than other texts, and none changes what is stored without an error.
func TestQuantities(t *testing.T) {
	const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: p}
spec:
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  mutations:
  - patchType: %s
    %s: {expression: %s}
`
	jsonPatch := func(value string) string {
		return `'[JSONPatch{op: "add", path: "/spec/containers/0/resources", value: {"limits": {"memory": ` + value + `}}}]'`
	}
	apply := func(value string) string {
		return `'Object{spec: Object.spec{containers: [Object.spec.containers{name: "a", resources: Object.spec.containers.resources{limits: {"memory": ` + value + `}}}]}}'`
	}
	const assign = `
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: a}
spec:
  applyTo: [{groups: [""], versions: [v1], kinds: [Pod]}]
  location: 'spec.containers[name:a].resources.limits.memory'
  parameters: {assign: {fromMetadata: {field: name}}}
`
	pod := func(name, annotation, limit string) string {
		text := "apiVersion: v1\nkind: Pod\nmetadata: {name: \"" + name + "\", annotations: {mem: \"" + annotation + "\"}}\nspec: {containers: [{name: a, image: b"
		if limit != "" {
			text += ", resources: {limits: {memory: \"" + limit + "\"}}"
		}
		return text + "}]}\n"
	}
	fill := func(kind, expression string) string {
		member := "jsonPatch"
		if kind == "ApplyConfiguration" {
			member = "applyConfiguration"
		}
		return strings.NewReplacer("patchType: %s", "patchType: "+kind, "%s: {expression: %s}", member+": {expression: "+expression+"}").Replace(policy)
	}
	for _, huge := range []string{"1e-1000000000", "1E-999999999", " 1e-1000000000 ", "1e1000000000", strings.Repeat("9", 2000)} {
		for name, tt := range map[string]struct{ policies, object string }{
			"JSONPatch":                         {fill("JSONPatch", jsonPatch(`object.metadata.annotations["mem"]`)), pod("x", huge, "")},
			"ApplyConfiguration":                {fill("ApplyConfiguration", apply(`object.metadata.annotations["mem"]`)), pod("x", huge, "")},
			"literal of a JSONPatch":            {fill("JSONPatch", jsonPatch(`"`+huge+`"`)), pod("x", "", "")},
			"literal of an ApplyConfiguration":  {fill("ApplyConfiguration", apply(`"`+huge+`"`)), pod("x", "", "")},
			"object, beside a JSONPatch":        {fill("JSONPatch", `'[JSONPatch{op: "add", path: "/spec/hostname", value: "a"}]'`), pod("x", "", huge)},
			"object, beside ApplyConfiguration": {fill("ApplyConfiguration", `'Object{spec: Object.spec{hostname: "a"}}'`), pod("x", "", huge)},
			"name":                              {assign, pod(strings.ToLower(strings.TrimSpace(huge)), "", "")},
		} {
			t.Run(name, func(t *testing.T) {
				policies, err := mapd.Load(mapd.Options{Unbound: true}, mapd.File{Name: "p.yaml", Data: []byte(tt.policies)})
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan struct{})
				go func() {
					defer close(done)
					for d, err := range mapd.Read("o.yaml", strings.NewReader(tt.object)) {
						if err != nil {
							t.Error(err)
							return
						}
						r, err := policies.Eval(t.Context(), d, mapd.RequestOptions{})
						if err != nil {
							continue // the object itself is refused
						}
						for _, c := range r.Diff() {
							if strings.HasSuffix(c.Path, "memory") && !r.Denied() {
								t.Errorf("%s: %v → %v", c.Path, c.Before, c.After)
							}
						}
					}
				}()
				select {
				case <-done:
				case <-time.After(20 * time.Second):
					t.Fatal("no answer")
				}
			})
		}
	}
}
