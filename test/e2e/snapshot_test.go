//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

const snapshotYAML = `
apiVersion: v1
kind: Namespace
metadata: {name: e2e-snapshot, labels: {e2e: snapshot}, annotations: {owner: payments}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: e2e-snapshot}
data: {tier: gold}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.snapshot.example.com}
spec:
  group: snapshot.example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, colour: {type: string}}
`

const snapshotPolicyYAML = `
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: e2e-snapshot}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    namespaceSelector: {matchLabels: {e2e: snapshot}}
    resourceRules:
    - {apiGroups: [snapshot.example.com], apiVersions: [v1], operations: [CREATE], resources: [widgets]}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >-
        Object{metadata: Object.metadata{labels: {"tier": string(params.data.tier), "owner": namespaceObject.metadata.annotations["owner"]}},
        spec: Object.spec{parts: [Object.spec.parts{name: "wheel", colour: "black"}]}}
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: e2e-snapshot}
spec:
  policyName: e2e-snapshot
  paramRef: {name: settings, namespace: e2e-snapshot, parameterNotFoundAction: Deny}
`

const snapshotWidgetYAML = `
apiVersion: snapshot.example.com/v1
kind: Widget
metadata: {name: cart, namespace: e2e-snapshot}
spec: {parts: [{name: wheel}, {name: bell, colour: red}]}
`

// TestSnapshot has mapd snapshot read a real API server, and what mapd then makes of an object
// without a cluster is what the API server stores with mapd as its webhook: parameters,
// Namespace, and the definition with its merge keys are all in the file.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	m := cluster.Installed(t, cluster.InstallOptions{Cluster: cluster.Options{Users: map[string][]string{"nobody-special": nil}}})
	m.NeedProcesses(t)
	m.Apply(t, snapshotYAML)
	widgets := schema.GroupVersionResource{Group: "snapshot.example.com", Version: "v1", Resource: "widgets"}
	cluster.Eventually(t, cluster.Patience, "the definition", func(ctx context.Context) error {
		_, err := m.Dynamic.Resource(widgets).List(ctx, metav1.ListOptions{})
		return err
	})
	m.Apply(t, snapshotPolicyYAML)
	var widget unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(snapshotWidgetYAML), &widget.Object); err != nil {
		t.Fatal(err)
	}
	// outcome is what the policy decides.
	outcome := func(u *unstructured.Unstructured) string {
		parts, _, _ := unstructured.NestedSlice(u.Object, "spec", "parts")
		return fmt.Sprint(u.GetLabels(), parts)
	}
	const want = "map[owner:payments tier:gold] [map[colour:black name:wheel] map[colour:red name:bell]]"
	cluster.Eventually(t, cluster.Patience, "the policy acts", func(ctx context.Context) error {
		u, err := m.Dynamic.Resource(widgets).Namespace("e2e-snapshot").Create(ctx, &widget, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && outcome(u) != want {
			err = fmt.Errorf("%s, want %s", outcome(u), want)
		}
		return err
	})

	dir := t.TempDir()
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	policies, object, snapshot := file("policies.yaml", snapshotPolicyYAML), file("widget.yaml", snapshotWidgetYAML), filepath.Join(dir, "cluster.yaml")
	config := m.Kubeconfig(t, m.Config, "")
	for _, args := range [][]string{{"--policies", policies}, nil} { // those of the cluster are the same
		if out, code, err := m.Mapd(t, config, append([]string{"snapshot", "--output-file", snapshot}, args...)...); err != nil || code != 0 {
			t.Fatalf("mapd snapshot %q: %d, %v\n%s", args, code, err, out)
		}
		out, code, err := m.Mapd(t, "/nowhere", "eval", "-q", "-o", "yaml", "-p", policies, "-p", snapshot, "-f", object)
		var got unstructured.Unstructured
		if err == nil {
			err = yaml.Unmarshal([]byte(out), &got.Object)
		}
		if err != nil || code != 0 || outcome(&got) != want {
			t.Errorf("with the snapshot of %q: %d, %v: %s, want %s", args, code, err, out, want)
		}
	}
	text, err := os.ReadFile(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	edited := file("edited.yaml", strings.Replace(string(text), "tier: gold", "tier: lead", 1))
	if out, err := exec.CommandContext(t.Context(), cluster.Binary(t), "eval", "-p", policies, "-p", edited, "-f", object).CombinedOutput(); err == nil || !strings.Contains(string(out), "ConfigMap e2e-snapshot/settings is not what the cluster had") {
		t.Errorf("an edited snapshot: %v\n%s", err, out)
	}
	// Somebody who may not read what policies read gets no file that lacks it.
	none := filepath.Join(dir, "none.yaml")
	if out, code, err := m.Mapd(t, m.Kubeconfig(t, m.User(t, "nobody-special"), ""), "snapshot", "-p", policies, "--output-file", none); err != nil || code == 0 {
		t.Errorf("without rights: %d, %v\n%s", code, err, out)
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("without rights there is a file")
	}
}
