//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// older builds mapd as of a commit, and returns the program and its install.yaml.
func older(t *testing.T, commit string) (program string, install []byte) {
	t.Helper()
	dir := t.TempDir()
	text := output(t, exec.Command("git", "-C", cluster.Root(t), "archive", "--format=tar", commit))
	unpack := exec.Command("tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(text)
	output(t, unpack)
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "mapd-old"), "./cmd/mapd")
	build.Dir = dir
	output(t, build)
	install, err := os.ReadFile(filepath.Join(dir, "manifests/install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "mapd-old"), install
}

// withoutService returns a manifest without the Service, which is that of the harness.
func withoutService(manifest []byte) []byte {
	docs := strings.Split(string(manifest), "\n---\n")
	return []byte(strings.Join(slices.DeleteFunc(docs, func(d string) bool { return strings.Contains("\n"+d, "\nkind: Service\n") }), "\n---\n"))
}

const upgradedYAML = `
apiVersion: v1
kind: Namespace
metadata: {name: upgraded, labels: {upgraded: "true"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: upgraded}
data: {team: payments}
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: upgraded}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    namespaceSelector: {matchLabels: {upgraded: "true"}}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{metadata: Object.metadata{labels: {"team": params.data.team}}}'
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: upgraded}
spec:
  policyName: upgraded
  paramRef: {name: settings, namespace: upgraded, parameterNotFoundAction: Deny}
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: watched, annotations: {mapd.dev/mode: shadow}}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {upgraded: "true"}}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}
  failurePolicy: Ignore
  reinvocationPolicy: Never
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '[JSONPatch{op: "add", path: "/metadata/labels", value: {"watched": "yes"}}]'
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: watched}
spec: {policyName: watched}
`

// TestUpgrade goes from an older commit to this tree and back, as docs/operate/install.md says,
// while requests flow: none is missed or refused, and policies, bindings, their definitions and
// the certificates are the same objects at the end. It runs only with
// MAPD_E2E_UPGRADE_FROM=COMMIT; make e2e-upgrade sets it.
func TestUpgrade(t *testing.T) {
	commit := os.Getenv("MAPD_E2E_UPGRADE_FROM")
	if commit == "" {
		t.Skip("make e2e-upgrade runs it")
	}
	old, install := older(t, commit)
	present, err := os.ReadFile(manifests(t, "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m := cluster.Install(t, cluster.Start(t, cluster.Options{}), cluster.InstallOptions{Replicas: 2, Program: old, Manifest: install})
	m.Apply(t, upgradedYAML)
	create := func(ctx context.Context, name string) error {
		cm, err := m.Kubernetes.CoreV1().ConfigMaps("upgraded").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err == nil && cm.Labels["team"] != "payments" {
			err = fmt.Errorf("%s has the labels %v", name, cm.Labels)
		}
		return err
	}
	n := 0
	cluster.Eventually(t, cluster.Patience, "the policy acts", func(ctx context.Context) error {
		n++
		return create(ctx, fmt.Sprintf("first-%d", n))
	})
	// state returns what has to stay: identities and specs.
	state := func() map[string]string {
		t.Helper()
		all := map[string]string{}
		add := func(gvr schema.GroupVersionResource, namespace string) {
			t.Helper()
			list, err := m.Dynamic.Resource(gvr).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range list.Items {
				what := fmt.Sprint(u.GetUID())
				if gvr.Group == policiesGVR.Group {
					what += fmt.Sprint(" ", u.GetGeneration(), u.Object["spec"], u.GetAnnotations()["mapd.dev/mode"])
				}
				if gvr.Resource == "secrets" {
					what += fmt.Sprint(u.Object["data"])
				}
				all[gvr.Resource+" "+u.GetName()] = what
			}
		}
		add(policiesGVR, "")
		add(bindingsGVR, "")
		add(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, "")
		add(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}, "")
		add(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, cluster.Namespace)
		return all
	}
	before := state()
	if len(before) < 8 {
		t.Fatalf("the state is %v", slices.Sorted(maps.Keys(before)))
	}
	// Requests flow until the end.
	ctx, stop := context.WithCancel(t.Context())
	var flow sync.WaitGroup
	var mu sync.Mutex
	var missed []error
	written := 0
	flow.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			err := create(ctx, fmt.Sprintf("flows-%06d", i))
			mu.Lock()
			written++
			if err != nil && !errors.Is(err, context.Canceled) && ctx.Err() == nil {
				missed = append(missed, err)
			}
			mu.Unlock()
		}
	})
	for _, step := range []struct {
		name, program string
		manifest      []byte
	}{{"upgrade", cluster.Binary(t), present}, {"rollback", old, install}} {
		if _, err := m.Kubectl(t, withoutService(step.manifest), "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		m.AggregateRoles(t)
		m.Use(step.program)
		m.Roll(t)
		after := state()
		for name, what := range before {
			if after[name] != what {
				t.Errorf("%s: %s was\n%s\nand is\n%s", step.name, name, what, after[name])
			}
		}
		// A policy that the new replicas have to read, and its status.
		name := "later-" + step.name
		later := strings.NewReplacer("name: watched", "name: "+name, "policyName: watched", "policyName: "+name).Replace(upgradedYAML[strings.Index(upgradedYAML, "---\napiVersion: admissionregistration.mapd.dev/v1\nkind: MutatingAdmissionPolicy\nmetadata: {name: watched"):])
		m.Apply(t, later)
		cluster.Eventually(t, cluster.Patience, "the status of "+name, func(ctx context.Context) error {
			u, err := m.Dynamic.Resource(policiesGVR).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions"); len(conditions) == 0 {
				return errors.New("it has no conditions")
			}
			return nil
		})
		if out, code, err := m.Mapd(t, m.Kubeconfig(t, m.Config, ""), "doctor"); err != nil || code != 0 {
			t.Errorf("%s: mapd doctor: %d, %v\n%s", step.name, code, err, out)
		}
	}
	stop()
	flow.Wait()
	if written < 100 || len(missed) > 0 {
		t.Errorf("%d requests, %d of them missed or refused: %v", written, len(missed), errors.Join(missed...))
	}
	t.Logf("%d requests while mapd was upgraded and rolled back", written)
}
