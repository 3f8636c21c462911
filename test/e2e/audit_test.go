//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// auditedObjects is how many objects the audit has to take within auditMemory.
const (
	auditedObjects = 20_000
	auditedMemory  = 256 << 20
)

// auditor is a cluster with objects and policies to audit.
type auditor struct {
	*cluster.Cluster
	who *rest.Config // may do what docs/operate/audit.md says
}

// TestAudit audits 20,000 objects, with the rights that docs/operate/audit.md names.
func TestAudit(t *testing.T) {
	t.Parallel()
	m := cluster.Install(t, cluster.Start(t, cluster.Options{Users: map[string][]string{"auditor": nil, "filler": {"system:masters"}}}), cluster.InstallOptions{Replicas: -1})
	a := &auditor{Cluster: m.Cluster, who: m.User(t, "auditor")}
	a.Apply(t, documented(t, "docs/operate/audit.md", "apiVersion: rbac.authorization.k8s.io/v1")+`---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: mapd-auditor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: mapd-auditor}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: auditor}]
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
`)
	a.Apply(t, documented(t, "docs/operate/audit.md", "apiVersion: flowcontrol.apiserver.k8s.io/v1"))
	a.Apply(t, auditPolicyYAML)
	few := a.serve(t, m)
	t.Run("fix", a.fix)
	t.Run("document", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "policies"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "policies", "team.yaml"), []byte(auditPolicyYAML), 0o600); err != nil {
			t.Fatal(err)
		}
		a.Apply(t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m-00001, namespace: shop}\n")
		r := newReader(t, m, dir, map[string]string{
			"mapd audit --fix --select policy=team,namespace=shop --yes": "the subtest fix does, with fewer objects",
			"mapd audit --undo mapd-audit-undo.yaml":                     "the subtest fix",
			"kubectl apply -k manifests/overlays/audit":                  "the subtest served applies its rights; TestManifestsAgree renders it",
		})
		r.follow(t, "docs/operate/audit.md", func(command string) {
			if strings.Contains(command, "configmap mapd-audit") {
				a.report(t)
			}
		}, nil)
		r.done(t, 6)
	})
	t.Run("served", func(t *testing.T) { a.served(t, m, few) })
	a.fill(t)
	t.Run("all", a.all)
	t.Run("resumed", a.resumed)
	t.Run("unreadable", a.unreadable)
}

const auditPolicyYAML = `
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: team, annotations: {mapd.dev/mode: shadow}}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConditions:
  - {name: half, expression: '!has(object.data) || !("team" in object.data)'}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{data: {"team": object.metadata.namespace}}'
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: team}
spec: {policyName: team}
`

// elsewhereYAML is a policy in shadow for three objects, and for a kind that mapd may not
// read.
const elsewhereYAML = `
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: few, annotations: {mapd.dev/mode: shadow}}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {few: "true"}}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps, services]}
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConditions:
  - {name: three, expression: 'object.metadata.name.startsWith("few-")'}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{metadata: Object.metadata{labels: {"few": "yes"}}}'
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: few}
spec: {policyName: few}
---
apiVersion: v1
kind: Namespace
metadata: {name: few, labels: {few: "true"}}
`

// serve starts a replica that audits, with the overlay's rights but that to list all objects.
func (a *auditor) serve(t *testing.T, m *cluster.Mapd) *cluster.Replica {
	t.Helper()
	a.Apply(t, elsewhereYAML)
	for i := range 3 {
		a.Apply(t, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: few-%d, namespace: few}\ndata: {password: hunter2}\n", i))
	}
	rights := strings.Split(overlayFile(t, "rbac-audit.yaml"), "---\n")
	a.Apply(t, rights[2]+"---\n"+rights[3])
	a.Apply(t, overlayFile(t, "flowcontrol-audit.yaml"))
	r := m.AddReplica(t, "--audit-interval=10m")
	m.WaitReady(t)
	return r
}

func overlayFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(manifests(t, "overlays", "audit", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// report waits for what the ConfigMap mapd-audit says.
func (a *auditor) report(t *testing.T) (data map[string]string) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, "the ConfigMap mapd-audit", func(ctx context.Context) error {
		m, err := a.Kubernetes.CoreV1().ConfigMaps(cluster.Namespace).Get(ctx, "mapd-audit", metav1.GetOptions{})
		if err == nil {
			data = m.Data
		}
		return err
	})
	return data
}

// served sees the outcome of the replica's first audit: in the ConfigMap and in metrics,
// with a policy in shadow as that, and with the kind that mapd may not list.
func (a *auditor) served(t *testing.T, m *cluster.Mapd, r *cluster.Replica) {
	data := a.report(t)
	text := fmt.Sprint(data)
	if want := regexp.MustCompile(`few +few +shadow +3 +0\n`); !want.MatchString(data["policies"]) || !strings.Contains(data["summary"], ": 0 would change,") ||
		!strings.Contains(data["problems"], `not read: services: services is forbidden: User "system:serviceaccount:mapd-system:mapd" cannot list`) || strings.Contains(text, "hunter2") {
		t.Errorf("the report is\n%s", text)
	}
	for labels, want := range map[string]float64{`binding="few",mode="shadow",policy="few"`: 3, `mode="enforce"`: 0} {
		if got, err := metric(t.Context(), r, "mapd_audit_would_change", labels); err != nil || got != want {
			t.Errorf("mapd_audit_would_change{%s} is %v, %v", labels, got, err)
		}
	}
	if got, err := metric(t.Context(), r, "mapd_audit_unreadable_kinds", ""); err != nil || got != 1 {
		t.Errorf("mapd_audit_unreadable_kinds is %v, %v", got, err)
	}
	// doctor takes from it what would differ from Git, and takes no sample.
	want := "√ objects from Git: none that Argo CD or Flux applies would differ from it (the last audit of mapd serve: " + data["summary"] + ")\n"
	if out, _, err := m.Mapd(t, m.Kubeconfig(t, m.Config, ""), "doctor"); err != nil || !strings.Contains(out, want) {
		t.Errorf("doctor does not say %q: %v\n%s", want, err, out)
	}
	// Nothing of it is a decision on a request for these objects.
	if got, err := metric(t.Context(), r, "mapd_shadow_decisions_total", `policy="few"`); err != nil || got != 0 {
		t.Errorf("mapd_shadow_decisions_total is %v, %v", got, err)
	}
	a.inFlowSchema(t, "mapd-audit")
	// With the whole of the overlay's rights it may list anything.
	a.Apply(t, overlayFile(t, "rbac-audit.yaml"))
	cluster.Eventually(t, cluster.Patience, "the right to list all objects", func(ctx context.Context) error {
		review, err := a.Kubernetes.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:mapd-system:mapd", ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "services"},
		}}, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = errors.New(review.Status.Reason)
		}
		return err
	})
}

// fill stores ConfigMaps, half of which have what the policy sets, and one as large as etcd
// takes.
func (a *auditor) fill(t *testing.T) {
	all := make([]metav1.Object, 0, auditedObjects+1)
	add := func(name string, data map[string]string) {
		all = append(all, &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uuid.NewUUID(), CreationTimestamp: metav1.Now()},
			Data:       data,
		})
	}
	add("large", map[string]string{"n": strings.Repeat("x", 1_500_000), "team": "shop"})
	for i := range auditedObjects {
		data := map[string]string{"n": strings.Repeat("x", 500)}
		if i%2 == 0 {
			data["team"] = "shop"
		}
		add(fmt.Sprintf("m-%05d", i), data)
	}
	a.Store(t, "configmaps", all...)
}

// audit runs mapd audit as the auditor.
func (a *auditor) audit(t *testing.T, args ...string) (cmd *exec.Cmd, stdout string) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), cluster.Binary(t), append([]string{"audit", "--kubeconfig", a.Kubeconfig(t, a.who, ""), "-n", "shop", "--qps", "50"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if errs.Len() > 0 {
		t.Logf("standard error: %s", &errs)
	}
	return cmd, out.String()
}

// changed returns the names of the objects of an output in JSON, and the totals.
func changed(t *testing.T, out string) (names []string, totals audit.Totals) {
	t.Helper()
	for line := range strings.Lines(out) {
		var l struct {
			Name   string
			Totals *audit.Totals
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Totals != nil {
			totals = *l.Totals
			continue
		}
		names = append(names, l.Name)
	}
	return names, totals
}

// all finds exactly the objects that lack what the policy sets.
func (a *auditor) all(t *testing.T) {
	cmd, out := a.audit(t, "-o", "json")
	names, totals := changed(t, out)
	if code := cmd.ProcessState.ExitCode(); code != 0 || len(names) != auditedObjects/2 {
		t.Fatalf("exit code %d, %d objects would change", code, len(names))
	}
	slices.Sort(names)
	for i, name := range names {
		if want := fmt.Sprintf("m-%05d", 2*i+1); name != want {
			t.Fatalf("object %d is %s, want %s", i, name, want)
		}
	}
	if totals.Objects < auditedObjects || totals.Changed != auditedObjects/2 || len(totals.Policies) != 1 || totals.Policies[0].Mode != "shadow" || totals.Policies[0].Fields["data.team"] != auditedObjects/2 {
		t.Errorf("totals %+v", totals)
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	peak := usage.Maxrss << 10
	t.Logf("%d objects: %d MiB at most, %s of CPU", totals.Objects, peak>>20, cmd.ProcessState.UserTime())
	if peak > auditedMemory {
		t.Errorf("took %d MiB, want at most %d", peak>>20, auditedMemory>>20)
	}
	a.inFlowSchema(t, "mapd-auditor")
}

// inFlowSchema sees that requests had a FlowSchema.
func (a *auditor) inFlowSchema(t *testing.T, name string) {
	t.Helper()
	text, err := a.Kubernetes.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := sumMetric(string(text), "apiserver_flowcontrol_dispatched_requests_total", fmt.Sprintf("flow_schema=%q,priority_level=\"workload-low\"", name)); err != nil || got == 0 {
		t.Errorf("%v requests had the FlowSchema %s, %v", got, name, err)
	}
}

// resumed has an audit killed after each of its first states, and sees nothing lost and
// nothing counted twice.
func (a *auditor) resumed(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	seen := map[string]bool{}
	kills := 0
	for {
		cmd := exec.CommandContext(t.Context(), cluster.Binary(t), "audit", "--kubeconfig", a.Kubeconfig(t, a.who, ""), "-n", "shop", "--qps", "50", "-o", "json", "--state", state)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		n := 0
		var totals *audit.Totals
		for lines.Scan() {
			var l struct {
				Name   string
				Totals *audit.Totals
			}
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				continue // the last line of a process that was killed
			}
			if l.Totals != nil {
				totals = l.Totals
				continue
			}
			seen[l.Name] = true
			if n++; n == 3000 && kills < 2 {
				kills++
				_ = cmd.Process.Kill()
			}
		}
		_ = cmd.Wait()
		if totals == nil {
			continue
		}
		if kills != 2 || len(seen) != auditedObjects/2 || totals.Changed != auditedObjects/2 {
			t.Errorf("after %d kills %d objects were seen, totals %+v", kills, len(seen), totals)
		}
		return
	}
}

// unreadable says which kind may not be read.
func (a *auditor) unreadable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secrets.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(auditPolicyYAML, "configmaps", "secrets, configmaps")), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, out := a.audit(t, "-p", file, "--diffs", "1")
	if code := cmd.ProcessState.ExitCode(); code != 5 || !strings.Contains(out, `note: not read: secrets: secrets is forbidden: User "auditor" cannot list resource "secrets"`) ||
		!strings.Contains(out, fmt.Sprintf("%d more objects not shown", auditedObjects/2-1)) {
		t.Errorf("exit code %d\n%s", code, out)
	}
}

const fixPolicyYAML = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: owner}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: 'Object{metadata: Object.metadata{labels: {"owner": "x"}}}'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: owner}
spec: {policyName: owner}
`

// fix writes objects that others write at the same time: nothing of theirs is lost, one
// that another manager has is a conflict, and --undo gives back what was.
func (a *auditor) fix(t *testing.T) {
	const objects, writes = 40, 200
	config := rest.CopyConfig(a.User(t, "filler"))
	config.QPS = -1
	maps := a.Client(t, config).CoreV1().ConfigMaps("fix")
	a.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: fix}\n")
	name := func(i int) string { return fmt.Sprintf("m-%02d", i%objects) }
	for i := range objects {
		if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name(i)}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	theirs := applycorev1.ConfigMap("theirs", "fix").WithLabels(map[string]string{"owner": "me"})
	if _, err := maps.Apply(t.Context(), theirs, metav1.ApplyOptions{FieldManager: "me"}); err != nil {
		t.Fatal(err)
	}
	policy, undo := filepath.Join(t.TempDir(), "policy.yaml"), filepath.Join(t.TempDir(), "undo.yaml")
	if err := os.WriteFile(policy, []byte(fixPolicyYAML), 0o600); err != nil {
		t.Fatal(err)
	}
	var others sync.WaitGroup
	for w := range 4 {
		others.Go(func() {
			for i := range writes {
				err := retry.RetryOnConflict(wait.Backoff{Steps: 1000, Duration: time.Millisecond}, func() error {
					m, err := maps.Get(t.Context(), name(i), metav1.GetOptions{})
					if err != nil {
						return err
					}
					if m.Data == nil {
						m.Data = map[string]string{}
					}
					m.Data[fmt.Sprintf("w%d-%d", w, i)] = "x"
					_, err = maps.Update(t.Context(), m, metav1.UpdateOptions{})
					return err
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	mapd := func(args ...string) (code int, out string) {
		cmd := exec.CommandContext(t.Context(), cluster.Binary(t), append([]string{"audit", "--kubeconfig", a.Kubeconfig(t, config, ""), "--qps", "1000"}, args...)...)
		text, _ := cmd.CombinedOutput()
		return cmd.ProcessState.ExitCode(), string(text)
	}
	code, out := mapd("-n", "fix", "-p", policy, "--kinds", "configmaps", "--fix", "--select", "policy=owner", "--yes", "--undo-file", undo)
	others.Wait()
	if code != 5 || !strings.Contains(out, "ConfigMap fix/theirs: conflict: ") || !strings.Contains(out, `conflict with "me"`) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	check := func(label string) {
		t.Helper()
		list, err := maps.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		entries := 0
		for _, m := range list.Items {
			want := label
			if m.Name == "theirs" {
				want = "me"
			} else {
				entries += len(m.Data)
			}
			if got := m.Labels["owner"]; strings.HasPrefix(m.Name, "m-") || m.Name == "theirs" {
				if got != want {
					t.Errorf("%s has the label %q, want %q", m.Name, got, want)
				}
			}
			if m.Name == "kube-root-ca.crt" {
				entries -= len(m.Data)
			}
		}
		if entries != 4*writes {
			t.Errorf("%d of %d writes of others are there", entries, 4*writes)
		}
	}
	check("x")
	if code, out = mapd("--undo", undo); code != 0 || !strings.Contains(out, " put back") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	check("")
}
