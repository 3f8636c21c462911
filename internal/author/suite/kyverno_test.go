package suite

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const kyvernoFile = `apiVersion: cli.kyverno.io/v1alpha1
kind: Test
metadata: {name: a}
policies: [policy.yaml]
resources: [pod.yaml]
variables: values.yaml
values:
  globalValues: {request.operation: UPDATE, request: {operation: CREATE}}
  policies: [{name: labels, rules: [{name: team, values: {request: {operation: DELETE}}}], resources: [{name: web, values: {a: 1}}]}]
  namespaceSelector: [{name: default, labels: {a: b}}]
results:
- {policy: labels, rule: autogen-team, kind: Pod, resources: [web], patchedResources: pod.yaml, result: pass}
- {policy: default/labels, resources: [default/web], result: skip}
checks: [{}]
`

// FuzzReadKyverno reads any text as a test of Kyverno's: there are suites or errors, and each
// unit has its object or the reason why it does not run.
func FuzzReadKyverno(f *testing.F) {
	f.Add(kyvernoFile)
	f.Add(strings.ReplaceAll(kyvernoFile, "labels", "other"))
	f.Add("apiVersion: kyverno.io/v1\nkind: Test\nname: a\npolicies: [policy.yaml]\nresources: [.]\nresults: [{policy: labels, resource: web, status: fail, namespace: shop}]\n")
	f.Add("apiVersion: cli.kyverno.io/v1alpha1\nkind: Test\nresults: [{policy: a, isMutatingPolicy: true, resourceSpecs: [{name: web, version: v1}]}]\n")
	dir := f.TempDir()
	for name, text := range map[string]string{
		"policy.yaml": `apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: labels}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [Pod]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {team: shop}}}}
`,
		"pod.yaml":    "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: web, image: nginx}]}\n",
		"values.yaml": "apiVersion: cli.kyverno.io/v1alpha1\nkind: Values\nmetadata: {name: a}\nglobalValues: {request.operation: CREATE}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			f.Fatal(err)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "/") && !strings.Contains(text, "kyverno.io/v1") || strings.Contains(text, "..") {
			t.Skip("it may name a file outside of the test's directory")
		}
		file := filepath.Join(dir, "fuzzed.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		suites, errs := Read(file)
		for _, s := range suites {
			for _, u := range s.units {
				if u.object == nil && u.skip == "" {
					t.Errorf("%s: no object; errors %q", u.name, errs)
				}
			}
		}
		if len(suites) == 0 && len(errs) == 0 {
			t.Error("nothing was read, and nothing is wrong")
		}
	})
}
