package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/mapd-project/mapd/test/hammer"
)

// kustomizeBuild is what "kustomize build --enable-alpha-plugins --enable-exec" does, by
// kustomize's own library. Its functions are processes.
func kustomizeBuild(t *testing.T, dir string) (string, error) {
	t.Helper()
	o := krusty.MakeDefaultOptions()
	o.PluginConfig = types.EnabledPluginConfig(types.BploUseStaticallyLinked)
	o.PluginConfig.FnpLoadingOptions.EnableExec = true
	made, err := krusty.MakeKustomizer(o).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return "", err
	}
	text, err := made.AsYaml()
	return string(text), err
}

// unpack writes the files of an archive into a new directory.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(archive)).Files {
		file := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, f.Data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const kustomization = `
-- kustomization.yaml --
namespace: shop
namePrefix: my-
resources: [web.yaml]
configMapGenerator:
- name: settings
  literals: [a=b]
transformers: [policies-fn.yaml]
-- policies-fn.yaml --
apiVersion: krm.mapd.dev/v1alpha1
kind: Policies
metadata:
  name: policies
  annotations:
    config.kubernetes.io/function: |
      exec: {path: mapd, args: [krm, -q]}
spec:
  paths: [policies]
-- policies/team.yaml --
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: team}
spec:
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: ["", apps], apiVersions: [v1], operations: [CREATE], resources: [deployments, configmaps]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >-
        Object{metadata: Object.metadata{labels: {"team": object.metadata.namespace},
          annotations: {"seen": has(object.metadata.annotations) ? string(size(object.metadata.annotations)) : "none"}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: team}
spec: {policyName: team}
-- web.yaml --
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: web:1
        envFrom: [{configMapRef: {name: settings}}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
`

// kustomize runs the function as a process: names, references and hashes are as without
// it, twice the same bytes, and a denial ends the build.
func TestKustomizeRunsKRM(t *testing.T) {
	hammer.Alone(t)
	dir := unpack(t, kustomization)
	out, err := kustomizeBuild(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := kustomizeBuild(t, dir)
	if err != nil || again != out {
		t.Errorf("another result: %v\n%s", err, cmp.Diff(out, again))
	}
	want := readFile(t, "testdata", "kustomize.golden")
	if *update {
		if err := os.WriteFile("testdata/kustomize.golden", []byte(out), 0o666); err != nil {
			t.Fatal(err)
		}
	} else if d := cmp.Diff(want, out); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	// The result of the build without policies, by eval: there is one implementation.
	plain := unpack(t, kustomization)
	text := strings.Replace(readFile(t, plain, "kustomization.yaml"), "transformers: [policies-fn.yaml]\n", "", 1)
	if err := os.WriteFile(filepath.Join(plain, "kustomization.yaml"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	evaluated := printed(t, "eval", "-q", "-p", filepath.Join(dir, "policies"), "-k", plain)
	if d := cmp.Diff(parseStream(t, evaluated), parseStream(t, out)); d != "" {
		t.Errorf("-eval +krm\n%s", d)
	}

	policy := filepath.Join(dir, "policies", "team.yaml")
	text = strings.Replace(readFile(t, policy), "object.metadata.namespace}", "object.metadata.labels.nosuch}", 1)
	if err := os.WriteFile(policy, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	if out, err := kustomizeBuild(t, dir); err == nil {
		t.Errorf("a denied object is built\n%s", out)
	}
}

// parseStream returns the objects of a stream.
func parseStream(t *testing.T, stream string) (objects []map[string]any) {
	t.Helper()
	for _, doc := range splitStream(stream) {
		objects = append(objects, parseObject(t, doc).Object)
	}
	return objects
}
