//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	corev1 "k8s.io/api/core/v1"

	"github.com/mapd-project/mapd/internal/audit"
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
	who *rest.Config // may do what docs/audit.md says
}

// TestAudit audits 20,000 objects, with the rights that docs/audit.md names.
func TestAudit(t *testing.T) {
	t.Parallel()
	m := cluster.Install(t, cluster.Start(t, cluster.Options{Users: map[string][]string{"auditor": nil, "filler": {"system:masters"}}}), cluster.InstallOptions{Replicas: -1})
	a := &auditor{Cluster: m.Cluster, who: m.User(t, "auditor")}
	a.Apply(t, documented(t, "docs/audit.md", "apiVersion: rbac.authorization.k8s.io/v1")+`---
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
	a.Apply(t, auditPolicyYAML)
	a.fill(t)
	t.Run("all", a.all)
	t.Run("resumed", a.resumed)
	t.Run("unreadable", a.unreadable)
	t.Run("document", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "policies"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "policies", "team.yaml"), []byte(auditPolicyYAML), 0o600); err != nil {
			t.Fatal(err)
		}
		r := newReader(t, m, dir, map[string]string{
			"mapd audit --fix --select policy=team,namespace=shop --yes": "TestAuditFix, which writes fewer objects",
			"mapd audit --undo mapd-audit-undo.yaml":                      "TestAuditFix",
		})
		r.follow(t, "docs/audit.md", nil, nil)
		r.done(t, 5)
	})
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

// fill creates ConfigMaps, half of which have what the policy sets.
func (a *auditor) fill(t *testing.T) {
	config := rest.CopyConfig(a.User(t, "filler"))
	config.QPS = -1
	client := a.Client(t, config)
	var next, failed atomic.Int64
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for i := next.Add(1) - 1; i < auditedObjects; i = next.Add(1) - 1 {
				m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%05d", i)}, Data: map[string]string{"n": strings.Repeat("x", 500)}}
				if i%2 == 0 {
					m.Data["team"] = "shop"
				}
				if _, err := client.CoreV1().ConfigMaps("shop").Create(t.Context(), m, metav1.CreateOptions{}); err != nil && failed.Add(1) == 1 {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if failed.Load() > 0 {
		t.FailNow()
	}
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
