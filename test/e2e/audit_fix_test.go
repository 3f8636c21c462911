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
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

const rolledYAML = `
apiVersion: v1
kind: Namespace
metadata: {name: roll}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: roll}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "nginx:1"}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: roll}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "nginx:1"}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: roll}
spec:
  replicas: 1
  serviceName: db
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "nginx:1"}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: map, namespace: roll}
data: {a: b, c: d}
`

// patchYAML is a policy with its binding that makes a JSON patch of objects of some resources.
func patchYAML(groups, resources, operations string) string {
	return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: patch}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [%q], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [%s]}
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConditions:
  - {name: ours, expression: 'object.metadata.name != "kube-root-ca.crt"'}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '[%s]'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: patch}
spec: {policyName: patch}
`, groups, resources, operations)
}

// TestAuditFix writes templates of workloads, fields that no write changes, and fields of
// others, and puts all of it back. The controllers' part is that of roll.
func TestAuditFix(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Users: map[string][]string{"fixer": {"system:masters"}}})
	c.Apply(t, rolledYAML)
	config := rest.CopyConfig(c.User(t, "fixer"))
	config.QPS = -1
	roll(t, c.Client(t, config))
	kubeconfig := c.Kubeconfig(t, config, "")
	dir := t.TempDir()
	undo := filepath.Join(dir, "undo.yaml")
	mapd := func(t *testing.T, want int, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), cluster.Binary(t), append([]string{"audit", "--kubeconfig", kubeconfig, "--qps", "1000"}, args...)...)
		text, _ := cmd.CombinedOutput()
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Fatalf("exit code %d, want %d\n%s", code, want, text)
		}
		return string(text)
	}
	fix := func(t *testing.T, want int, policy string, args ...string) string {
		t.Helper()
		file := filepath.Join(dir, "policy.yaml")
		if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
			t.Fatal(err)
		}
		return mapd(t, want, append([]string{"-n", "roll", "-p", file, "--fix", "--select", "all", "--yes", "--undo-file", undo}, args...)...)
	}
	says := func(t *testing.T, out string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("want %q in\n%s", w, out)
			}
		}
	}
	none := func(t *testing.T) {
		t.Helper()
		if _, err := os.Stat(undo); !os.IsNotExist(err) {
			t.Errorf("the undo file: %v", err)
		}
	}
	objects := func(t *testing.T) map[string]any {
		t.Helper()
		out := map[string]any{}
		client := c.DynamicClient(t, config)
		for _, gvr := range []schema.GroupVersionResource{
			{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "daemonsets"},
			{Group: "apps", Version: "v1", Resource: "statefulsets"}, {Version: "v1", Resource: "configmaps"},
		} {
			list, err := client.Resource(gvr).Namespace("roll").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range list.Items {
				if u.GetName() != "kube-root-ca.crt" {
					out[u.GetKind()] = comparable(&u)
				}
			}
		}
		return out
	}
	before := objects(t)
	same := func(t *testing.T) {
		t.Helper()
		if diff := cmp.Diff(before, objects(t)); diff != "" {
			t.Errorf("(-before +now):\n%s", diff)
		}
	}

	t.Run("pods", func(t *testing.T) {
		policy := patchYAML("apps", "deployments, daemonsets, statefulsets",
			`JSONPatch{op: "add", path: "/spec/template/metadata/annotations", value: {"team": "a"}}, JSONPatch{op: "replace", path: "/spec/template/spec/containers/0/terminationMessagePolicy", value: "FallbackToLogsOnError"}`)
		out := fix(t, 5, policy, "--dry-run=server")
		says(t, out, "3 objects to check, about a second at --qps 1000\n3 workloads replace 4 Pods; these are left out without --replace-pods\n",
			"Deployment roll/web: left out: the write replaces its 2 Pods; --replace-pods allows it\n", "\n3 left out\n")
		says(t, fix(t, 5, policy), "\n3 left out\n")
		none(t)
		same(t)
		out = fix(t, 5, policy, "--replace-pods", "--dry-run=server")
		says(t, out, "conflict")
		says(t, fix(t, 0, strings.Replace(policy, ", JSONPatch{op: \"replace\", path: \"/spec/template/spec/containers/0/terminationMessagePolicy\", value: \"FallbackToLogsOnError\"}", "", 1), "--replace-pods"),
			"DaemonSet roll/agent: written: replaces its Pod\n", "Deployment roll/web: written: replaces its 2 Pods\n", "StatefulSet roll/db: written: replaces its Pod\n", "\n3 written\n")
		says(t, mapd(t, 5, "--undo", undo), "3 workloads replace 4 Pods; these are left out without --replace-pods\n", "\n3 left out\n")
		says(t, mapd(t, 0, "--undo", undo, "--replace-pods", "--dry-run=server"), "Deployment roll/web: would be written: replaces its 2 Pods\n", "\n3 would be written\n")
		says(t, mapd(t, 0, "--undo", undo, "--replace-pods"), "DaemonSet roll/agent: put back: replaces its Pod\n", "\n3 put back\n")
		says(t, mapd(t, 0, "--undo", undo), "\n3 is as it was\n")
		same(t)
		if err := os.Remove(undo); err != nil {
			t.Fatal(err)
		}
	})
	for name, tt := range map[string]struct{ groups, resources, operations, why string }{
		"name":      {"", "configmaps", `JSONPatch{op: "replace", path: "/metadata/name", value: "other"}`, "metadata.name cannot be changed"},
		"namespace": {"", "configmaps", `JSONPatch{op: "replace", path: "/metadata/namespace", value: "kube-system"}`, "metadata.namespace cannot be changed"},
		"uid":       {"", "configmaps", `JSONPatch{op: "replace", path: "/metadata/uid", value: "x"}`, "metadata.uid cannot be changed"},
		"created":   {"", "configmaps", `JSONPatch{op: "replace", path: "/metadata/creationTimestamp", value: "2020-01-01T00:00:00Z"}`, "metadata.creationTimestamp cannot be changed"},
		"status":    {"apps", "deployments", `JSONPatch{op: "add", path: "/status/collisionCount", value: 7}`, "the API server leaves status.collisionCount unchanged"},
	} {
		t.Run(name, func(t *testing.T) {
			policy := patchYAML(tt.groups, tt.resources, tt.operations)
			for _, args := range [][]string{{"--dry-run=server"}, nil, nil} {
				says(t, fix(t, 5, policy, args...), ": not written: "+tt.why+"\n", "\n1 not written\n")
			}
			none(t)
			same(t)
		})
	}
	t.Run("fields of others", func(t *testing.T) {
		says(t, fix(t, 0, patchYAML("", "configmaps", `JSONPatch{op: "remove", path: "/data/a"}`)), "\n1 written\n")
		says(t, mapd(t, 0, "--undo", undo), "ConfigMap roll/map: put back\n")
		same(t)
		says(t, mapd(t, 0, "--undo", undo), "ConfigMap roll/map: is as it was\n")
		same(t)
	})
}

// comparable returns what of an object a write and its undo together leave as it is, with who
// manages which field.
func comparable(u *unstructured.Unstructured) map[string]any {
	o := u.DeepCopy()
	o.SetResourceVersion("")
	o.SetGeneration(0)
	delete(o.Object, "status")
	if a := o.GetAnnotations(); a["deprecated.daemonset.template.generation"] != "" {
		a["deprecated.daemonset.template.generation"] = ""
		o.SetAnnotations(a)
	}
	managers := map[string]any{}
	for _, m := range o.GetManagedFields() {
		if m.Subresource == "" {
			managers[m.Manager+" "+string(m.Operation)] = string(m.FieldsV1.GetRawBytes())
		}
	}
	o.SetManagedFields(nil)
	o.Object["managers"] = managers
	return o.Object
}

// roll plays the controllers of workloads: a rollout is over soon after it began.
func roll(t *testing.T, client kubernetes.Interface) {
	apps := client.AppsV1()
	once := func(ctx context.Context) {
		if list, err := apps.Deployments("roll").List(ctx, metav1.ListOptions{}); err == nil {
			for _, d := range list.Items {
				n := *d.Spec.Replicas
				d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n}
				_, _ = apps.Deployments("roll").UpdateStatus(ctx, &d, metav1.UpdateOptions{}) // the next turn does
			}
		}
		if list, err := apps.StatefulSets("roll").List(ctx, metav1.ListOptions{}); err == nil {
			for _, d := range list.Items {
				n := *d.Spec.Replicas
				d.Status = appsv1.StatefulSetStatus{ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n, CurrentRevision: "a", UpdateRevision: "a"}
				_, _ = apps.StatefulSets("roll").UpdateStatus(ctx, &d, metav1.UpdateOptions{})
			}
		}
		if list, err := apps.DaemonSets("roll").List(ctx, metav1.ListOptions{}); err == nil {
			for _, d := range list.Items {
				d.Status = appsv1.DaemonSetStatus{ObservedGeneration: d.Generation, CurrentNumberScheduled: 1, DesiredNumberScheduled: 1, UpdatedNumberScheduled: 1, NumberAvailable: 1}
				_, _ = apps.DaemonSets("roll").UpdateStatus(ctx, &d, metav1.UpdateOptions{})
			}
		}
	}
	once(t.Context())
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				once(ctx)
			}
		}
	}()
	t.Cleanup(func() { stop(); <-done })
}
