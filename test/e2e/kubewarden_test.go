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

	"github.com/mapd-project/mapd/internal/cluster/modulepolicies"
	"github.com/mapd-project/mapd/test/e2e/cluster"
	"github.com/mapd-project/mapd/test/guest"
)

// TestKubewarden runs Kubewarden's policies of a cluster, whose kinds come after mapd.
func TestKubewarden(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	overlay := output(t, exec.Command(cluster.Program(t, "kubectl"), "kustomize", manifests(t, "overlays", "kubewarden")))
	m := cluster.Install(t, c, cluster.InstallOptions{Manifest: overlay, Replicas: -1})
	rights, err := os.ReadFile(filepath.Join(cluster.Root(t), "manifests/overlays/expansion/rbac-expansion.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, string(rights))
	m.AddReplica(t, "--kubewarden=on", "--expansion")
	m.WaitReady(t)
	c.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}")
	if _, err := c.Kubectl(t, nil, "apply", "--filename="+filepath.Join(cluster.Root(t), "test/e2e/testdata/kubewarden-crds.yaml")); err != nil {
		t.Fatal(err)
	}
	c.WaitKinds(t)
	dir := t.TempDir()
	module := func(name string, a guest.Answers) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, guest.Module(a), 0o644); err != nil {
			t.Fatal(err)
		}
		return "file://" + path
	}
	// The module answers a ConfigMap's creation with the whole object. managedFields are
	// as the server sent them, so the answer leaves them out and the server fills them in.
	answer := `{"accepted":true,"warnings":["labelled"],"mutated_object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","namespace":"shop","labels":{"by":"guest"}},"data":{"a":"b"}}}`
	policy := func(kind, name, module, more string) {
		t.Helper()
		c.Apply(t, fmt.Sprintf(`
apiVersion: policies.kubewarden.io/v1
kind: %s
metadata: {name: %s}
spec:
  module: %q
%s`, kind, name, module, more))
	}
	policy("ClusterAdmissionPolicy", "label", module("label.wasm", guest.Answers{Validate: answer}), `
  mutating: true
  objectSelector: {matchLabels: {}}
  matchConditions: [{name: one, expression: 'object.metadata.name == "one"'}]
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
`)
	policy("ClusterAdmissionPolicy", "keep", module("keep.wasm", guest.Answers{Validate: `{"accepted":false,"message":"it stays","code":409}`}), `
  mutating: false
  objectSelector: {matchLabels: {keep: "yes"}}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [DELETE]}]
`)
	policy("ClusterAdmissionPolicy", "settings", module("settings.wasm", guest.Answers{Settings: `{"valid":false,"message":"no team"}`}), `
  mutating: true
  objectSelector: {matchLabels: {broken: "yes"}}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [configmaps], operations: [CREATE]}]
`)
	policies := func(want ...string) {
		t.Helper()
		cluster.Eventually(t, cluster.Patience, "what is said of policies", func(ctx context.Context) error {
			cm, err := m.Kubernetes.CoreV1().ConfigMaps(cluster.Namespace).Get(ctx, modulepolicies.ListingName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, w := range want {
				if !strings.Contains(cm.Data["policies"], w) {
					return fmt.Errorf("no %q in\n%s", w, cm.Data["policies"])
				}
			}
			return nil
		})
	}
	policies("clusterwide-keep      running", "clusterwide-label     running", "clusterwide-settings  broken   spec.module: Policy settings are invalid: no team")

	r := newReader(t, m, cluster.Root(t), map[string]string{"kubectl apply -k manifests/overlays/kubewarden": "installed above"})
	r.follow(t, "docs/move/kubewarden.md", nil, nil)
	r.done(t, 3)

	create := func(name string, labels map[string]string) error {
		_, err := c.Kubectl(t, []byte(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: shop, labels: %s}\ndata: {a: b}", name, mapText(labels))), "create", "--filename=-")
		return err
	}
	// The entries come a moment after the policies.
	cluster.Eventually(t, cluster.Patience, "the policy to label", func(ctx context.Context) error {
		if err := create("one", nil); err != nil {
			return err
		}
		cm, err := m.Kubernetes.CoreV1().ConfigMaps("shop").Get(ctx, "one", metav1.GetOptions{})
		if err == nil && cm.Labels["by"] != "guest" {
			err = fmt.Errorf("labels %v", cm.Labels)
			_ = m.Kubernetes.CoreV1().ConfigMaps("shop").Delete(ctx, "one", metav1.DeleteOptions{})
		}
		return err
	})
	if err := create("kept", map[string]string{"keep": "yes"}); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, cluster.Patience, "the deletion to be refused", func(ctx context.Context) error {
		_, err := c.Kubectl(t, nil, "delete", "--namespace=shop", "configmap", "kept", "--dry-run=server")
		if err == nil || !strings.Contains(err.Error(), `policy "clusterwide-keep" denied request: it stays`) {
			return fmt.Errorf("error %v", err)
		}
		return nil
	})
	cluster.Eventually(t, cluster.Patience, "the policy whose settings are not valid to refuse", func(ctx context.Context) error {
		err := create("broken", map[string]string{"broken": "yes"})
		if err == nil {
			_ = m.Kubernetes.CoreV1().ConfigMaps("shop").Delete(ctx, "broken", metav1.DeleteOptions{})
		}
		if err == nil || !strings.Contains(err.Error(), "Policy settings are invalid: no team") {
			return fmt.Errorf("error %v", err)
		}
		return nil
	})
	if err := create("other", nil); err != nil {
		t.Errorf("an object that no policy matches: %v", err)
	}
	// What a workload creates meets them, too.
	policy("ClusterAdmissionPolicy", "pods", module("pods.wasm", guest.Answers{Validate: `{"accepted":false,"message":"no Pods here"}`}), `
  mutating: true
  objectSelector: {matchLabels: {app: web}}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE]}]
`)
	policies("clusterwide-pods      running")
	cluster.Eventually(t, cluster.Patience, "the author of a Deployment to be warned", func(context.Context) error {
		out, err := c.Kubectl(t, nil, "create", "--namespace=shop", "deployment", "web", "--image=nginx", "--dry-run=server", "--warnings-as-errors")
		const want = `mapd: Pod shop/web-pod: policy "clusterwide-pods" denied request: no Pods here`
		if err == nil || !strings.Contains(err.Error(), want) {
			return fmt.Errorf("%s, error %v", out, err)
		}
		return nil
	})
	if _, err := c.Kubectl(t, nil, "delete", "clusteradmissionpolicies", "keep", "settings"); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, cluster.Patience, "the policies to be gone", func(ctx context.Context) error {
		if _, err := c.Kubectl(t, nil, "delete", "--namespace=shop", "configmap", "kept", "--ignore-not-found"); err != nil {
			return err
		}
		return nil
	})
}

func mapText(m map[string]string) string {
	var parts []string
	for k, v := range m {
		parts = append(parts, k+`: "`+v+`"`)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
