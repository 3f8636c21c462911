//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// moduleDir returns where the Go command keeps a module, which it downloads if need be.
func moduleDir(t testing.TB, module string) string {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	var m struct{ Dir, Error string }
	if json.Unmarshal(out, &m) != nil || err != nil || m.Dir == "" {
		t.Fatalf("%s: %v: %s", module, err, out)
	}
	return m.Dir
}

// reporting is an API for reports with the definitions of its projects.
type reporting struct {
	name, module, definitions string
	namespaced, whole         schema.GroupVersionResource
}

var reportAPIs = []reporting{
	{"openreports", "github.com/openreports/reports-api@v0.2.1", "config/crd/*.yaml",
		schema.GroupVersionResource{Group: "openreports.io", Version: "v1alpha1", Resource: "reports"},
		schema.GroupVersionResource{Group: "openreports.io", Version: "v1alpha1", Resource: "clusterreports"}},
	{"policyreport", "github.com/kyverno/kyverno@v1.19.1", "config/crds/policyreport/*.yaml",
		schema.GroupVersionResource{Group: "wgpolicyk8s.io", Version: "v1alpha2", Resource: "policyreports"},
		schema.GroupVersionResource{Group: "wgpolicyk8s.io", Version: "v1alpha2", Resource: "clusterpolicyreports"}},
}

// define applies the definitions.
func (a *reporting) define(t testing.TB, c *cluster.Cluster) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(moduleDir(t, a.module), a.definitions))
	if err != nil || len(files) != 2 {
		t.Fatalf("%s: %d definitions, %v", a.module, len(files), err)
	}
	for _, file := range files {
		if out, err := c.Kubectl(t, nil, "apply", "--server-side", "-f", file); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// grant gives mapd the rights of the overlays audit and reports.
func (a *reporting) grant(t testing.TB, c *cluster.Cluster) {
	t.Helper()
	for _, file := range []string{"audit/rbac-audit.yaml", "reports/rbac-reports.yaml"} {
		text, err := os.ReadFile(filepath.Join(cluster.Root(t), "manifests/overlays", file))
		if err != nil {
			t.Fatal(err)
		}
		// As the comment in rbac-reports.yaml says.
		rights := strings.ReplaceAll(string(text), "[openreports.io]", "["+a.namespaced.Group+"]")
		rights = strings.ReplaceAll(rights, "[reports, clusterreports]", "["+a.namespaced.Resource+", "+a.whole.Resource+"]")
		if _, err := c.Kubectl(t, []byte(rights), "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
}

// reports returns the reports of mapd, by namespace.
func (a *reporting) reports(ctx context.Context, client dynamic.Interface) (map[string]*unstructured.Unstructured, error) {
	all := map[string]*unstructured.Unstructured{}
	for _, r := range []schema.GroupVersionResource{a.namespaced, a.whole} {
		list, err := client.Resource(r).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=mapd"})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			all[list.Items[i].GetNamespace()] = &list.Items[i]
		}
	}
	return all, nil
}

const reportsPolicyYAML = `
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: team}
spec:
  matchConstraints:
    namespaceSelector: {matchExpressions: [{key: team, operator: Exists}]}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps, namespaces]}
  failurePolicy: Ignore
  reinvocationPolicy: Never
  matchConditions:
  - {name: managed, expression: '!has(object.metadata.labels) || !("audited" in object.metadata.labels)'}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{metadata: Object.metadata{labels: {"audited": "yes"}}}'
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: team}
spec: {policyName: team}
`

// TestReports has replicas audit with --reports, with the definitions of both projects and the
// shipped rights: reports are made, left alone while nothing changes, updated in place, and
// removed. Without the definitions mapd says what is missing and goes on.
func TestReports(t *testing.T) {
	t.Parallel()
	var all []part
	for _, api := range reportAPIs {
		all = append(all, part{api.name, func(t *testing.T) {
			m := cluster.Install(t, cluster.Start(t, cluster.Options{}), cluster.InstallOptions{Replicas: -1})
			api.grant(t, m.Cluster)
			// They are here before the policy, as what audits are for.
			m.Apply(t, `
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {team: shop}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: shop}
data: {password: hunter2}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: db, namespace: shop}
`+"---"+reportsPolicyYAML)
			// audit has a new replica audit, and returns the line about reports of its ConfigMap.
			audit := func(want string) {
				t.Helper()
				forgetAudit(t, m)
				r := m.AddReplica(t, "--audit-interval=10m", "--reports="+api.name)
				cluster.Eventually(t, cluster.Patience, "the ConfigMap mapd-audit", func(ctx context.Context) error {
					cm, err := m.Kubernetes.CoreV1().ConfigMaps(cluster.Namespace).Get(ctx, "mapd-audit", metav1.GetOptions{})
					if err == nil && !strings.Contains(cm.Data["reports"], want) {
						t.Fatalf("reports: %q, want %q; problems: %q", cm.Data["reports"], want, cm.Data["problems"])
					}
					return err
				})
				m.Remove(t, r)
			}
			reports := func() map[string]*unstructured.Unstructured {
				t.Helper()
				all, err := api.reports(t.Context(), m.Dynamic)
				if err != nil {
					t.Fatal(err)
				}
				return all
			}
			audit("the cluster does not serve Cluster")
			api.define(t, m.Cluster)
			audit("2 reports: 2 created, 0 updated, 0 unchanged; 0 removed")
			first := reports()
			text, err := json.Marshal(first)
			if err != nil || len(first) != 2 || first["shop"] == nil || first[""] == nil || strings.Contains(string(text), "hunter2") {
				t.Fatalf("%v: %s", err, text)
			}
			results, _, _ := unstructured.NestedSlice(first["shop"].Object, "results")
			if len(results) != 2 {
				t.Fatalf("%d results: %s", len(results), text)
			}
			db := results[0].(map[string]any)
			uid, err := m.Kubernetes.CoreV1().ConfigMaps("shop").Get(t.Context(), "db", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(db["source"], db["policy"], db["rule"], db["result"], db["severity"], db["resources"]); got !=
				fmt.Sprintf("mapdteamteamfaillow[map[apiVersion:v1 kind:ConfigMap name:db namespace:shop uid:%s]]", uid.UID) {
				t.Errorf("the result is %s", got)
			}
			if out, err := m.Kubectl(t, nil, "get", api.namespaced.Resource+"."+api.namespaced.Group, "mapd", "-n", "shop", "--no-headers"); err != nil || !strings.Contains(strings.Join(strings.Fields(out), " "), "mapd 0 2 0 0 0") {
				t.Errorf("kubectl get: %q, %v", out, err)
			}
			audit("2 reports: 0 created, 0 updated, 2 unchanged; 0 removed")
			for namespace, u := range reports() {
				if u.GetResourceVersion() != first[namespace].GetResourceVersion() {
					t.Errorf("the report of %q was written although nothing has changed", namespace)
				}
			}
			if _, err := m.Kubectl(t, nil, "label", "configmap", "web", "-n", "shop", "audited=yes"); err != nil {
				t.Fatal(err)
			}
			audit("2 reports: 0 created, 1 updated, 1 unchanged; 0 removed")
			if now := reports()["shop"]; now.GetUID() != first["shop"].GetUID() {
				t.Error("the report is another object after an update")
			}
			if _, err := m.Kubectl(t, nil, "delete", "mutatingadmissionpolicybindings.admissionregistration.mapd.dev", "team"); err != nil {
				t.Fatal(err)
			}
			audit("0 reports: 0 created, 0 updated, 0 unchanged; 2 removed")
			if left := reports(); len(left) != 0 {
				t.Errorf("%d reports are left", len(left))
			}
		}})
	}
	together(t, all)
}

// forgetAudit deletes the ConfigMap of the last audit until it is gone.
func forgetAudit(t testing.TB, m *cluster.Mapd) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, "the ConfigMap mapd-audit to be gone", func(ctx context.Context) error {
		err := m.Kubernetes.CoreV1().ConfigMaps(cluster.Namespace).Delete(ctx, "mapd-audit", metav1.DeleteOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		return errors.New("it was there until now")
	})
}

// TestReportsCost measures what reports of 20,000 objects cost etcd and mapd, and runs only
// with MAPD_E2E_COST=1: the figures are for docs/operate/audit.md.
func TestReportsCost(t *testing.T) {
	if os.Getenv("MAPD_E2E_COST") == "" {
		t.Skip("a measurement: MAPD_E2E_COST=1 runs it")
	}
	const objects, spread = 20_000, 20
	api := reportAPIs[0]
	m := cluster.Install(t, cluster.Start(t, cluster.Options{}), cluster.InstallOptions{Replicas: -1})
	api.grant(t, m.Cluster)
	api.define(t, m.Cluster)
	for n := range spread {
		m.Apply(t, fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: team-%02d, labels: {team: a, audited: \"yes\"}}\n", n))
		var all []metav1.Object
		for i := range objects / spread {
			all = append(all, &corev1.ConfigMap{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("team-%02d", n), Name: fmt.Sprintf("settings-%05d", i), UID: uuid.NewUUID(), CreationTimestamp: metav1.Now()},
				Data:       map[string]string{"n": strings.Repeat("x", 500)},
			})
		}
		m.Store(t, "configmaps", all...)
	}
	m.Apply(t, reportsPolicyYAML)
	// What the API server counts of etcd and of requests for reports.
	server := func(name, labels string) float64 {
		t.Helper()
		text, err := m.Kubernetes.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		v, err := sumMetric(string(text), name, labels)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	writes := func() float64 {
		return server("apiserver_request_total", `resource="reports",scope="resource",subresource="",verb="POST"`) + server("apiserver_request_total", `resource="reports",scope="resource",subresource="",verb="PUT"`)
	}
	measure := func(what string, flags ...string) {
		t.Helper()
		forgetAudit(t, m)
		before := writes()
		r := m.AddReplica(t, append([]string{"--audit-interval=10m"}, flags...)...)
		var said corev1.ConfigMap
		cluster.Eventually(t, 5*time.Minute, "the ConfigMap mapd-audit", func(ctx context.Context) error {
			cm, err := m.Kubernetes.CoreV1().ConfigMaps(cluster.Namespace).Get(ctx, "mapd-audit", metav1.GetOptions{})
			if err == nil {
				said = *cm
			}
			return err
		})
		cpu, err := metric(t.Context(), r, "process_cpu_seconds_total", "")
		if err != nil {
			t.Fatal(err)
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.PID()))
		if err != nil {
			t.Fatal(err)
		}
		_, peak, _ := strings.Cut(string(status), "VmHWM:")
		peak, _, _ = strings.Cut(peak, "\n")
		t.Logf("%s: %.2f s of CPU since the start, %s at most; %.0f writes of reports; %s: %s", what, cpu, strings.TrimSpace(peak), writes()-before, said.Data["summary"], strings.TrimSpace(said.Data["reports"]))
		m.Remove(t, r)
	}
	measure("without reports")
	measure("first reports", "--reports=openreports")
	measure("unchanged", "--reports=openreports")
	all, err := api.reports(t.Context(), m.Dynamic)
	if err != nil {
		t.Fatal(err)
	}
	size, largest := 0, 0
	for _, u := range all {
		text, err := json.Marshal(u)
		if err != nil {
			t.Fatal(err)
		}
		size, largest = size+len(text), max(largest, len(text))
	}
	t.Logf("%d reports, as etcd has them %d KiB, the largest %d KiB", len(all), size>>10, largest>>10)
	if len(all) != spread {
		t.Error(errors.New("not one report for each namespace"))
	}
}
