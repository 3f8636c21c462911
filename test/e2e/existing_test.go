//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// existingYAML is a policy with its binding that gives the label of its name to a resource in the
// namespace shop.
func existingYAML(name, resource, existing string) string {
	return fmt.Sprintf(`
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [%[2]s]}
  failurePolicy: Ignore
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"%[1]s": "yes"}}}'}
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s, annotations: {mapd.dev/existing: %[3]s}}
spec: {policyName: %[1]s}
`, name, resource, existing)
}

// grantExisting gives mapd the rights of the overlays audit and existing, and those to write some kinds.
func grantExisting(t testing.TB, m *cluster.Mapd) {
	t.Helper()
	for _, file := range []string{"audit/rbac-audit.yaml", "existing/rbac-existing.yaml"} {
		text, err := os.ReadFile(filepath.Join(cluster.Root(t), "manifests/overlays", file))
		if err != nil {
			t.Fatal(err)
		}
		m.Apply(t, string(text))
	}
	m.Apply(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: mapd-existing-some, labels: {mapd.dev/aggregate-to-existing: "true"}}
rules:
- {apiGroups: ["", apps], resources: [configmaps, pods, replicasets, deployments], verbs: [get, patch]}
`)
	m.AggregateRoles(t)
}

// existingCondition waits until the status of a binding has a reason, and returns the message.
func existingCondition(t testing.TB, m *cluster.Mapd, binding, reason string, patience time.Duration) (message string) {
	t.Helper()
	cluster.Eventually(t, patience, "the reason "+reason, func(ctx context.Context) error {
		u, err := m.Dynamic.Resource(api.OwnBindings).Get(ctx, binding, metav1.GetOptions{})
		if err != nil {
			return err
		}
		all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, c := range all {
			if c := c.(map[string]any); c["type"] == "ExistingInLine" {
				if message, _ = c["message"].(string); c["reason"] == reason {
					return nil
				}
				return fmt.Errorf("%v: %v", c["reason"], c["message"])
			}
		}
		return fmt.Errorf("no condition")
	})
	return message
}

// changes counts how often each ConfigMap of a namespace is changed.
type changes struct {
	mu sync.Mutex
	of map[string]int
}

func watchChanges(t testing.TB, m *cluster.Mapd, namespace string) *changes {
	t.Helper()
	list, err := m.Kubernetes.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	w, err := m.Kubernetes.CoreV1().ConfigMaps(namespace).Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	c := &changes{of: map[string]int{}}
	go func() {
		for e := range w.ResultChan() {
			if o, ok := e.Object.(*corev1.ConfigMap); ok && e.Type == watch.Modified {
				c.mu.Lock()
				c.of[o.Name]++
				c.mu.Unlock()
			}
		}
	}()
	return c
}

// most returns how many objects were changed, and how often the one that was changed most.
func (c *changes) most() (objects, most int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.of {
		most = max(most, n)
	}
	return len(c.of), most
}

func labelledMaps(t testing.TB, m *cluster.Mapd, label string) int {
	t.Helper()
	list, err := m.Kubernetes.CoreV1().ConfigMaps("shop").List(t.Context(), metav1.ListOptions{LabelSelector: label})
	if err != nil {
		t.Fatal(err)
	}
	return len(list.Items)
}

// TestExisting has replicas bring objects in line, with the shipped rights: report writes nothing;
// fix writes each object once, also if the holder of the Lease is killed meanwhile and objects
// change; what Git applies is left alone; who changes a field back stops it; Pods of a ReplicaSet are left
// alone, and the template of their Deployment is written; and all of it is put back.
func TestExisting(t *testing.T) {
	t.Parallel()
	m := cluster.Install(t, cluster.Start(t, cluster.Options{}), cluster.InstallOptions{Replicas: -1})
	grantExisting(t, m)
	m.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
	const objects = 60
	m.Apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied, namespace: shop, labels: {argocd.argoproj.io/instance: shop}}\n")
	for i := range objects {
		m.Apply(t, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m-%02d, namespace: shop}\n", i))
	}
	m.Apply(t, existingYAML("team", "configmaps", "report"))
	all := watchChanges(t, m, "shop")
	flags := []string{"--audit-interval=10m", "--existing-rate=300"}
	r := m.AddReplica(t, flags...)
	if text := existingCondition(t, m, "team", "Reported", cluster.Patience); text != fmt.Sprintf("%d objects would change; nothing is written", objects+1) {
		t.Errorf("report says %q", text)
	}
	if n, _ := all.most(); n != 0 {
		t.Fatalf("report has written %d objects", n)
	}
	m.Remove(t, r)

	// The holder is killed, and clients write objects meanwhile.
	annotate := func(value string) {
		t.Helper()
		if _, err := m.Kubectl(t, nil, "annotate", "--overwrite", "mutatingadmissionpolicybindings.admissionregistration.mapd.dev", "team", "mapd.dev/existing="+value); err != nil {
			t.Fatal(err)
		}
	}
	annotate("fix")
	r = m.AddReplica(t, flags...)
	cluster.Eventually(t, cluster.Patience, "the first writes", func(context.Context) error {
		if n := labelledMaps(t, m, "team=yes"); n < 5 {
			return fmt.Errorf("%d", n)
		}
		return nil
	})
	r.Kill()
	m.Remove(t, r)
	if n := labelledMaps(t, m, "team=yes"); n >= objects {
		t.Fatalf("all %d objects were written before the holder was killed", n)
	}
	r = m.AddReplica(t, flags...)
	text := existingCondition(t, m, "team", "LeftAlone", 2*cluster.Patience)
	if n := labelledMaps(t, m, "team=yes"); n != objects || !strings.Contains(text, "1 left alone (1 applied from Git)") {
		t.Errorf("%d objects are in line, %s", n, text)
	}
	if n, most := all.most(); n != objects || most != 1 {
		t.Errorf("%d objects were changed, one %d times", n, most)
	}
	m.Remove(t, r)

	// Somebody changes a field back: nothing more is written, whoever holds the Lease.
	if _, err := m.Kubectl(t, nil, "label", "configmap", "m-07", "-n", "shop", "team-"); err != nil {
		t.Fatal(err)
	}
	m.Apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a-new-one, namespace: shop}\n")
	m.Store(t, "configmaps", &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: "z-new", Namespace: "shop", UID: uuid.NewUUID(), CreationTimestamp: metav1.Now()}})
	r = m.AddReplica(t, flags...)
	if text := existingCondition(t, m, "team", "ChangedBack", cluster.Patience); !strings.Contains(text, "metadata.labels.team of an object of the kind ConfigMap was changed back, at last by kubectl") {
		t.Errorf("the status says %q", text)
	}
	if stopped, err := metric(t.Context(), r, "mapd_existing_stopped", `binding="team"`); err != nil || stopped != 1 {
		t.Errorf("mapd_existing_stopped is %v, %v", stopped, err)
	}
	cluster.Eventually(t, cluster.Patience, "the event", func(ctx context.Context) error {
		list, err := m.Kubernetes.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == "ChangedBack" && e.Regarding.Name == "team" {
				return nil
			}
		}
		return fmt.Errorf("none of %d", len(list.Items))
	})
	m.Remove(t, r)
	for _, name := range []string{"m-07", "z-new"} { // the list goes by name, and m-07 is the sign
		o, err := m.Kubernetes.CoreV1().ConfigMaps("shop").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || o.Labels["team"] != "" {
			t.Errorf("%s has the labels %v after the fight, %v", name, o.Labels, err)
		}
	}

	// Pods of a ReplicaSet, and another binding while the first is stopped.
	m.DefaultServiceAccounts(t, "shop")
	podSpec := `{containers: [{name: main, image: "nginx:1"}]}`
	m.Apply(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  paused: true
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: `+podSpec+`}
`)
	uidOf := func(resource, name string) types.UID {
		t.Helper()
		out, err := m.Kubectl(t, nil, "get", resource, name, "-n", "shop", "-o", "jsonpath={.metadata.uid}")
		if err != nil {
			t.Fatal(err)
		}
		return types.UID(out)
	}
	owner := func(kind, name string, uid types.UID) string {
		return fmt.Sprintf("[{apiVersion: apps/v1, kind: %s, name: %s, uid: %s, controller: true}]", kind, name, uid)
	}
	m.Apply(t, fmt.Sprintf(`
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-1, namespace: shop, ownerReferences: %s}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: %s}
`, owner("Deployment", "web", uidOf("deployment", "web")), podSpec))
	m.Apply(t, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: web-1-x, namespace: shop, labels: {app: web}, ownerReferences: %s}\nspec: %s\n", owner("ReplicaSet", "web-1", uidOf("replicaset", "web-1")), podSpec))
	m.Apply(t, existingYAML("tier", "pods", "fix"))
	r = m.AddReplica(t, append(flags, "--existing-replace-pods")...)
	existingCondition(t, m, "tier", "InLine", cluster.Patience)
	existingCondition(t, m, "team", "ChangedBack", cluster.Patience)
	for what, want := range map[string]string{
		"{.items[?(@.kind=='Deployment')].spec.template.metadata.labels.tier}": "yes",
		"{.items[?(@.kind=='Pod')].metadata.labels.tier}":                      "",
		"{.items[?(@.kind=='ReplicaSet')].metadata.labels.tier}":               "",
	} {
		out, err := m.Kubectl(t, nil, "get", "deployments,replicasets,pods", "-n", "shop", "-o", "jsonpath="+what)
		if err != nil || out != want {
			t.Errorf("%s is %q, want %q: %v", what, out, want, err)
		}
	}
	m.Remove(t, r)

	// All of it is put back, but what somebody has changed since.
	config := rest.CopyConfig(m.Config)
	out, _, err := m.Mapd(t, m.Kubeconfig(t, config, ""), "audit", "--undo", "@cluster", "--replace-pods", "--qps=500")
	if err != nil {
		t.Fatal(err)
	}
	if n := labelledMaps(t, m, "team=yes"); n > 1 || !strings.Contains(out, "Deployment shop/web: put back") {
		t.Errorf("%d objects are not put back:\n%s", n, out)
	}
}

// TestExistingLoad brings 20,000 ConfigMaps in line with faults: the holder is killed, and the API server is cut
// off. It runs only with MAPD_E2E_EXISTING=1; MAPD_E2E_EXISTING=N has N objects.
func TestExistingLoad(t *testing.T) {
	given := os.Getenv("MAPD_E2E_EXISTING")
	if given == "" {
		t.Skip("a measurement: MAPD_E2E_EXISTING=1 runs it")
	}
	objects := 20_000
	if n := 0; given != "1" {
		if _, err := fmt.Sscan(given, &n); err != nil || n < 100 {
			t.Fatalf("MAPD_E2E_EXISTING=%s: want 1 or a number of objects", given)
		}
		objects = n
	}
	m := cluster.Install(t, cluster.Start(t, cluster.Options{}), cluster.InstallOptions{Replicas: -1})
	grantExisting(t, m)
	m.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
	for from := 0; from < objects; from += 1000 {
		var all []metav1.Object
		for i := from; i < min(from+1000, objects); i++ {
			all = append(all, &corev1.ConfigMap{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("m-%05d", i), UID: uuid.NewUUID(), CreationTimestamp: metav1.Now()},
				Data:       map[string]string{"n": strings.Repeat("x", 500)},
			})
		}
		m.Store(t, "configmaps", all...)
	}
	m.Apply(t, existingYAML("team", "configmaps", "fix"))
	changed := watchChanges(t, m, "shop")
	requests := func() float64 {
		t.Helper()
		text, err := m.Kubernetes.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		v, err := sumMetric(string(text), "apiserver_request_total", "")
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	began, before := time.Now(), requests()
	flags := []string{"--audit-interval=1h", "--existing-rate=6000"}
	r := m.AddReplica(t, flags...)
	until := func(n int) {
		t.Helper()
		cluster.Eventually(t, 30*time.Minute, fmt.Sprintf("%d objects", n), func(context.Context) error {
			if have, _ := changed.most(); have < n {
				return fmt.Errorf("%d", have)
			}
			return nil
		})
	}
	peak := func(r *cluster.Replica) string {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.PID()))
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(string(status), "VmHWM:")
		text, _, _ = strings.Cut(text, "\n")
		return strings.TrimSpace(text)
	}
	until(objects / 4)
	rate := time.Now()
	done, _ := changed.most()
	first := requests()
	until(objects / 2)
	now, _ := changed.most()
	t.Logf("without faults: %d objects in %s, %.1f a second, %.1f requests a second", now-done, time.Since(rate).Round(time.Second), float64(now-done)/time.Since(rate).Seconds(), (requests()-first)/time.Since(rate).Seconds())
	t.Logf("the first holder: %s at most", peak(r))
	r.Kill()
	m.Remove(t, r)
	r = m.AddReplica(t, flags...)
	until(objects * 3 / 4)
	m.RestartAPIServer(t)
	message := existingCondition(t, m, "team", "InLine", 30*time.Minute)
	cpu, err := metric(t.Context(), r, "process_cpu_seconds_total", "")
	if err != nil {
		t.Fatal(err)
	}
	n := labelledMaps(t, m, "team=yes")
	list, err := m.Kubernetes.CoreV1().Secrets(cluster.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "mapd.dev/existing=undo"})
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, s := range list.Items {
		size += len(s.Data["undo.yaml.gz"])
	}
	t.Logf("all: %d objects in %s, %.0f requests before the API server was restarted and since; the second holder: %s at most, %.1f s of CPU; %d Secrets, %d KiB; %s",
		n, time.Since(began).Round(time.Second), requests()+first-before, peak(r), cpu, len(list.Items), size>>10, message)
	if n != objects {
		t.Errorf("%d of %d objects are in line", n, objects)
	}
	// Each object has one undo record that says that it was stored, or one that does not if the holder was killed.
	list2, err := m.Kubernetes.CoreV1().ConfigMaps("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list2.Items {
		o := &list2.Items[i]
		if len(o.Data["n"]) != 500 || o.Labels["team"] != "yes" {
			t.Errorf("%s is %v", o.Name, o)
		}
	}
	if _, most := changed.most(); most > 1 {
		t.Errorf("an object was changed %d times", most)
	}
}
