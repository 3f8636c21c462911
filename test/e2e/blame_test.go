//go:build e2e

package e2e

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

const blamedWeb = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "nginx:1"}]}
`

// TestBlame asks who wrote the fields of a Deployment and its Pod: in the cluster, and
// of the server's audit log. A controller's part is played as controllers do it: names are
// left to the server.
func TestBlame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policyFile, auditLog := filepath.Join(dir, "audit.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policyFile, []byte(`apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: RequestResponse, resources: [{group: apps, resources: [deployments]}]}
- {level: Metadata, resources: [{group: "", resources: [pods, pods/binding]}]}
- {level: None}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	m := cluster.Installed(t, cluster.InstallOptions{Cluster: cluster.Options{
		Users: map[string][]string{"poor": nil},
		Flags: []string{"--audit-policy-file=" + policyFile, "--audit-log-path=" + auditLog, "--audit-log-mode=blocking"},
	}})
	m.NeedProcesses(t)
	m.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: stream}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")
	m.DefaultServiceAccounts(t, "shop")
	m.Apply(t, policiesYAML(
		madePolicy{name: "on-workloads", resource: "deployments.apps", mutation: `Object{spec: Object.spec{revisionHistoryLimit: 3}}`},
		madePolicy{name: "on-pods", resource: "pods", mutation: labelled("marked")},
		madePolicy{name: "on-maps", mutation: labelled("on-maps")},
	))
	acts(t, m, "configmaps", "on-maps") // one entry has all three

	if _, err := m.Kubectl(t, []byte(blamedWeb), "apply", "--server-side", "--field-manager=gitops", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Kubectl(t, nil, "-n", "shop", "patch", "deployment", "web", "--type=merge", "--field-manager=alice", "-p", `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"nginx:2"}]}}}}`); err != nil {
		t.Fatal(err)
	}
	pod := blamedPod(t, m)
	kubeconfig := m.Kubeconfig(t, m.Config, "shop")
	cases := []blameCase{
		{"deployment", []string{"blame", "deploy/web"}, 0, []string{
			`deployment.apps/web +spec\.revisionHistoryLimit +policy on-workloads/on-workloads +\S+Z +record +create`,
			`pod/web-\S+ +metadata\.labels\.marked +policy on-pods/on-pods +\S+Z +record +create\n`,
			`(?m:^)(?:deployment.apps/web +)?spec\.replicas +manager gitops +\S+Z +managedFields +apply\n`,
			`(?m:^)(?:deployment.apps/web +)?spec\.template\.spec\.containers\[0\]\.image +manager alice +\S+Z +managedFields +update\n`,
		}},
		{"pod", []string{"blame", "pods/" + pod}, 0, []string{
			`\nspec\.containers\[0\]\.image +manager alice +\S+Z +managedFields +update; in replicaset.apps/\S+ spec\.template\.spec\.containers\[0\]\.image; in deployment.apps/web spec\.template\.spec\.containers\[0\]\.image\n`,
			`\nmetadata\.labels\.app +manager gitops .* in deployment.apps/web spec\.template\.metadata\.labels\.app\n`,
			`\nmetadata\.labels\.marked +policy on-pods/on-pods +\S+Z +record +create\n`,
			`\nmetadata\.generateName +manager kube-controller-manager`,
		}},
		{"audit log of the deployment", []string{"blame", "deployments.apps/web", "-n", "shop", "--audit-log", auditLog}, 0, []string{
			`\n\* +user \S+ +\S+Z +audit log +patch; the log does not say which fields|\nspec\.replicas +user`,
			`spec\.revisionHistoryLimit +policy on-workloads/on-workloads +\S+Z +audit log +patch by`,
			`spec\.template\.spec\.containers\[0\]\.image +user \S+ +\S+Z +audit log +patch`,
		}},
		{"audit log of the pod", []string{"blame", "po/" + pod, "-n", "shop", "--audit-log", auditLog}, 0, []string{
			`\nmetadata\.labels\.marked +policy on-pods/on-pods +\S+Z +audit log +create by \S+; the log does not name what this request created\n`,
		}},
		{"without records", []string{"blame", "pods/" + pod}, 5, []string{
			`\nmetadata\.labels\.marked +policy on-pods/on-pods +- +again +a guess`,
			`\nspec\.containers\[0\]\.image +manager alice`,
		}},
		{"no such object", []string{"blame", "deploy/none"}, 1, nil},
	}
	for _, command := range blameCommands(t, pod) {
		cases = append(cases, blameCase{command, strings.Fields(command)[1:], 0, nil})
	}
	replica := "https://" + m.Replicas()[0].Addr // no kubelet forwards ports to it
	for _, c := range cases {
		if c.name == "without records" {
			c.args = append(c.args, "--replica", "https://127.0.0.1:1")
		} else if !slices.Contains(c.args, "--audit-log") {
			c.args = append(c.args, "--replica", replica)
		}
		t.Run(c.name, func(t *testing.T) {
			out, code, err := m.Mapd(t, kubeconfig, c.args...)
			if err != nil || code != c.code {
				t.Fatalf("exit code %d, %v\n%s", code, err, out)
			}
			for _, want := range c.want {
				if !regexp.MustCompile(want).MatchString(out) {
					t.Errorf("want %s in\n%s", want, out)
				}
			}
		})
	}
	columns(t, m)
	counted(t, m, kubeconfig, replica)
	storedRecords(t, m, kubeconfig)
}

// columns waits until kubectl get mapb shows what a binding has done.
func columns(t *testing.T, m *cluster.Mapd) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, "the columns of a binding", func(context.Context) error {
		out, err := m.Kubectl(t, nil, "get", "mapb", "on-pods")
		if err != nil {
			return err
		}
		if got := squeeze(out); !strings.HasPrefix(got, "NAME POLICY PARAM READY MODE CHANGED WOULD FAILED AGE on-pods on-pods True enforce 1 0 0 ") {
			return errors.New(got)
		}
		return nil
	})
}

// counted asks for counts: of a replica that answers and one that does not, of none, and of a
// policy that there is not.
func counted(t *testing.T, m *cluster.Mapd, kubeconfig, replica string) {
	t.Helper()
	const cut = "https://127.0.0.1:1"
	for _, c := range []struct {
		args []string
		code int
		want string // a pattern
	}{
		{[]string{"top", "-o", "json", "--replica", replica}, 0, `(?s)^\{.*"policy": "on-pods",\s+"binding": "on-pods",\s+"seen": 1,\s+"changed": 1,.*"since"`},
		{[]string{"top", "--sort", "changes", "--replica", replica, "--replica", cut}, 5, `(?m)^on-pods +on-pods +\S+ +\S+ +1 +0 +1 +0$`},
		{[]string{"rollout", "status", "on-pods", "--replica", replica, "--replica", cut}, 5, `(?m)^on-pods +on-pods +enforce +100 +0 +1 +0 +1 +0 +Pod shop/web-7d4b-: metadata\.labels\.marked$`},
		{[]string{"rollout", "status", "on-pods", "-o", "json", "--replica", cut, "--replica", replica}, 5, `"name": "https://127.0.0.1:1",\s+"error": "`},
		{[]string{"rollout", "status", "--replica", cut}, 2, `^$`},
		{[]string{"top", "--replica", cut}, 2, `^$`},
		{[]string{"rollout", "status", "on-pod", "--replica", replica}, 2, `^$`},
		{[]string{"rollout", "diff", "on-pods", "--replica", replica}, 0, `^$`},
	} {
		if out, code, err := m.Mapd(t, kubeconfig, c.args...); err != nil || code != c.code || !regexp.MustCompile(c.want).MatchString(out) {
			t.Errorf("mapd %s: exit code %d, %v, want %d and %s in\n%s", strings.Join(c.args, " "), code, err, c.code, c.want, out)
		}
	}
}

// storedRecords asks after the replica was replaced: what it remembered is in its ConfigMap
// then, and no records are for who has no right to them.
func storedRecords(t *testing.T, m *cluster.Mapd, kubeconfig string) {
	t.Helper()
	replace := func() (url string) {
		old := m.Replicas()[0]
		m.AddReplica(t, "--record-sink=configmap")
		m.WaitReady(t)
		m.Remove(t, old)
		return "https://" + m.Replicas()[0].Addr
	}
	replace()
	api := m.Client(t, m.Config)
	set, err := api.AppsV1().ReplicaSets("shop").Get(t.Context(), "web-7d4b", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := createdPod(t.Context(), t, api, set, metav1.CreateOptions{FieldManager: "kube-controller-manager"})
	replica := replace()
	out, code, err := m.Mapd(t, kubeconfig, "blame", "pods/"+pod, "--replica", replica)
	if err != nil || code != 0 {
		t.Errorf("exit code %d, %v", code, err)
	}
	for _, want := range []string{
		`\nmetadata\.labels\.marked +policy on-pods/on-pods +\S+Z +record +create\n`,
		`\nspec\.containers\[0\]\.image +manager alice .* in deployment.apps/web spec\.template\.spec\.containers\[0\]\.image\n`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("want %s in\n%s", want, out)
		}
	}
	poor := m.Kubeconfig(t, m.User(t, "poor"), "shop")
	if out, code, err := m.Mapd(t, poor, "blame", "pods/"+pod, "--replica", replica); err != nil || code != 1 || strings.Contains(out, "on-pods") {
		t.Errorf("without rights: exit code %d, %v\n%s", code, err, out)
	}
	if code, body, err := m.Replicas()[0].Get(t.Context(), "/records/blame?kind=Pod&namespace=shop&name="+pod); err != nil || code != http.StatusUnauthorized {
		t.Errorf("without a token: HTTP status %d, %v\n%s", code, err, body)
	}
}

type blameCase struct {
	name string
	args []string
	code int
	want []string // patterns
}

// blameCommands returns the commands of docs/operate/blame.md, about a Pod that there is.
func blameCommands(t *testing.T, pod string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cluster.Root(t), "docs/operate/blame.md"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile(`(?m)^    (mapd blame .*)$`).FindAllStringSubmatch(string(text), -1) {
		out = append(out, strings.Replace(m[1], "pod/web-7d4b9c-x2x5w", "pod/"+pod, 1))
	}
	if len(out) < 2 {
		t.Fatalf("%d commands: the page is not read as it is written", len(out))
	}
	return out
}

// blamedPod does what the controllers of Deployments and ReplicaSets do, and binds the
// Pod as the scheduler does.
func blamedPod(t *testing.T, m *cluster.Mapd) string {
	t.Helper()
	ctx, options := t.Context(), metav1.CreateOptions{FieldManager: "kube-controller-manager"}
	api := m.Client(t, m.Config)
	web, err := api.AppsV1().Deployments("shop").Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	template := web.Spec.Template.DeepCopy()
	template.Labels["pod-template-hash"] = "7d4b"
	set, err := api.AppsV1().ReplicaSets("shop").Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web-7d4b", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(web, appsv1.SchemeGroupVersion.WithKind("Deployment"))}},
		Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: *template},
	}, options)
	if err != nil {
		t.Fatal(err)
	}
	return createdPod(ctx, t, api, set, options)
}

func createdPod(ctx context.Context, t *testing.T, api kubernetes.Interface, set *appsv1.ReplicaSet, options metav1.CreateOptions) string {
	t.Helper()
	pod, err := api.CoreV1().Pods("shop").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: set.Name + "-", Labels: set.Spec.Template.Labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}},
		Spec: set.Spec.Template.Spec,
	}, options)
	if err == nil && pod.Labels["marked"] != "yes" {
		err = errors.New("the policy did not run")
	}
	if err == nil {
		err = api.CoreV1().Pods("shop").Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "node"}}, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return pod.Name
}
