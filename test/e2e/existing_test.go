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

// TestExisting has replicas bring objects in line, with the shipped rights: without audits the status says so; report writes nothing;
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
	r := m.AddReplica(t, "--existing-rate=300")
	if text := existingCondition(t, m, "team", "NotAudited", cluster.Patience); !strings.Contains(text, "mapd serve runs without --audit-interval") {
		t.Errorf("without audits the status says %q", text)
	}
	if text := r.Log(t); !strings.Contains(text, "flags have no effect without --audit-interval") || !strings.Contains(text, "[--existing-rate]") {
		t.Errorf("the log does not say that a flag has no effect:\n%s", text)
	}
	m.Remove(t, r)
	flags := []string{"--audit-interval=10m", "--existing-rate=300"}
	r = m.AddReplica(t, flags...)
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
	// A watch is told of a write later than its author.
	cluster.Eventually(t, cluster.Patience, "the changes of all objects", func(context.Context) error {
		if n, most := all.most(); n < objects {
			return fmt.Errorf("%d objects were changed, one %d times", n, most)
		}
		return nil
	})
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

// existingRequests are the requests by which objects are brought in line, as an API server counts them.
// Nobody else sends such in TestExistingLoad.
var existingRequests = []struct{ what, series string }{
	{"pages of the audits", `resource="configmaps",scope="cluster",subresource="",verb="LIST"`},
	{"objects read", `dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="GET"`},
	{"writes tried", `dry_run="All",group="",resource="configmaps",scope="resource",subresource="",verb="APPLY"`},
	{"undo records", `resource="secrets",scope="resource",subresource="",verb="P`}, // POST, PUT
	{"writes", `dry_run="",group="",resource="configmaps",scope="resource",subresource="",verb="APPLY"`},
}

// serverCounts has an API server's counts of requests, also of one that is restarted.
type serverCounts struct {
	mu      sync.Mutex
	last    []float64 // of the process that runs
	of      []float64 // in all
	all     float64   // of any kind
	most    float64   // of existingRequests, in a second
	at      time.Time
	process float64 // when it was started
}

// countRequests reads the counts every five seconds until stop is called, and when look is.
func countRequests(t testing.TB, m *cluster.Mapd) (c *serverCounts, look, stop func()) {
	c = &serverCounts{last: make([]float64, len(existingRequests)+1), of: make([]float64, len(existingRequests))}
	ctx, cancel := context.WithCancel(t.Context())
	look = func() {
		if text, err := m.Kubernetes.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx); err == nil {
			c.take(string(text))
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			look()
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Second):
			}
		}
	}()
	return c, look, func() { look(); cancel(); <-done }
}

func (c *serverCounts) take(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, process := time.Now(), 0.0
	if v, err := sumMetric(text, "process_start_time_seconds", ""); err == nil {
		process = v
	}
	if process != c.process {
		clear(c.last)
	}
	sum := 0.0
	for i := range c.last {
		labels := ""
		if i < len(existingRequests) {
			labels = existingRequests[i].series
		}
		v, err := sumMetric(text, "apiserver_request_total", labels)
		if err != nil {
			return
		}
		if i < len(existingRequests) {
			sum += v - c.last[i]
			c.of[i] += v - c.last[i]
		} else {
			c.all += v - c.last[i]
		}
		c.last[i] = v
	}
	if process == c.process && now.Sub(c.at) > 4*time.Second { // the first look, and the first after a restart, have no beginning
		c.most = max(c.most, sum/now.Sub(c.at).Seconds())
	}
	c.at, c.process = now, process
}

// TestExistingLoad brings 20,000 ConfigMaps in line with faults: the holder is killed, and the API server is
// restarted. It runs only with MAPD_E2E_EXISTING=1; MAPD_E2E_EXISTING=N has N objects.
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
	const rate = 1800 // a minute
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
	written := func() (n int) {
		for _, writes := range m.Writes(t, "configmaps", "shop") {
			if writes > 1 {
				n++
			}
		}
		return n
	}
	until := func(n int) {
		t.Helper()
		cluster.Eventually(t, 30*time.Minute, fmt.Sprintf("%d objects", n), func(context.Context) error {
			time.Sleep(time.Second) // a look at all keys is not for free
			if have := written(); have < n {
				return fmt.Errorf("%d", have)
			}
			return nil
		})
	}
	usage := func(r *cluster.Replica) string {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.PID()))
		if err != nil {
			t.Fatal(err)
		}
		_, peak, _ := strings.Cut(string(status), "VmHWM:")
		peak, _, _ = strings.Cut(peak, "\n")
		cpu, err := metric(t.Context(), r, "process_cpu_seconds_total", "")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s at most, %.0f s of CPU", strings.TrimSpace(peak), cpu)
	}
	c, look, stop := countRequests(t, m)
	began := time.Now()
	flags := []string{"--audit-interval=1h", fmt.Sprintf("--existing-rate=%d", rate)}
	r := m.AddReplica(t, flags...)
	until(objects / 4)
	first, from := time.Now(), written()
	until(objects / 2)
	n, took := written()-from, time.Since(first)
	t.Logf("without faults: %d objects in %s, %.1f a second of %d at most", n, took.Round(time.Second), float64(n)/took.Seconds(), rate/60)
	if most := took.Seconds()*rate/60 + 10; float64(n) > most {
		t.Errorf("%d objects in %s are more than %.0f", n, took, most)
	}
	t.Logf("the first holder: %s", usage(r))
	r.Kill()
	m.Remove(t, r)
	r = m.AddReplica(t, flags...)
	until(objects * 3 / 4)
	look() // or what comes after the last look is not counted
	m.RestartAPIServer(t)
	message := existingCondition(t, m, "team", "InLine", 30*time.Minute)
	t.Logf("all in %s; the second holder: %s; %s", time.Since(began).Round(time.Second), usage(r), message)
	stop()
	total := 0.0
	for i, of := range existingRequests {
		total += c.of[i]
		t.Logf("%s: %.0f", of.what, c.of[i])
	}
	t.Logf("%.0f requests, %.2f for each object, %.0f a second at most; %.0f of any kind and of anybody", total, total/float64(objects), c.most, c.all)

	list, err := m.Kubernetes.CoreV1().Secrets(cluster.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "mapd.dev/existing=undo"})
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, s := range list.Items {
		size += len(s.Data["undo.yaml.gz"])
	}
	t.Logf("%d Secrets of undo records, %d KiB", len(list.Items), size>>10)
	// None is lost, and none written twice.
	all, err := m.Kubernetes.CoreV1().ConfigMaps("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lost, twice := objects-len(all.Items), 0
	for i := range all.Items {
		if o := &all.Items[i]; len(o.Data["n"]) != 500 || o.Labels["team"] != "yes" {
			lost++
		}
	}
	for _, writes := range m.Writes(t, "configmaps", "shop") {
		if writes > 2 {
			twice++
		}
	}
	t.Logf("lost %d, written twice %d", lost, twice)
	if lost != 0 || twice != 0 {
		t.Errorf("of %d objects %d are not in line and %d were written more than once", objects, lost, twice)
	}
}
