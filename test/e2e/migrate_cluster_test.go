//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// reading is what migrate asks for, and no more.
const reading = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s}
rules:
- {apiGroups: [mutations.gatekeeper.sh, config.gatekeeper.sh, example.com], resources: ["*"], verbs: [get, list]}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get, list]}
- {apiGroups: [""], resources: [%[2]s], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: %[1]s}]
`

// someMutators are some of which exact policies can be made.
const someMutators = `
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: always-pull}
spec:
  applyTo: [{groups: [""], versions: [v1], kinds: [Pod]}]
  location: "spec.containers[name:*].imagePullPolicy"
  parameters: {assign: {value: Always}}
---
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: size}
spec:
  applyTo: [{groups: [example.com], versions: [v1], kinds: [Thing]}]
  location: spec.size
  parameters: {assign: {value: small}}
---
apiVersion: mutations.gatekeeper.sh/v1
kind: AssignMetadata
metadata: {name: owner}
spec:
  match:
    kinds: [{apiGroups: [""], kinds: [ConfigMap, Secret]}]
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}
  location: metadata.labels.owner
  parameters: {assign: {value: shop}}
---
apiVersion: config.gatekeeper.sh/v1alpha1
kind: Config
metadata: {name: config, namespace: default}
spec: {match: [{processes: [mutation-webhook], excludedNamespaces: [kube-*]}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: gatekeeper-system}
---
apiVersion: config.gatekeeper.sh/v1alpha1
kind: Config
metadata: {name: config, namespace: gatekeeper-system}
spec: {match: [{processes: ["*"], excludedNamespaces: [legacy-*]}]}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {password: hush}
---
apiVersion: example.com/v1
kind: Thing
metadata: {name: one}
spec: {}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec: {containers: [{name: main, image: nginx}]}
`

const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, users: [reader]}, {level: None}]
`

// manyConfigMaps are more than one page.
const manyConfigMaps = 600

// TestMigrateFromCluster has migrate read what is in a cluster.
func TestMigrateFromCluster(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	audit := filepath.Join(dir, "audit.yaml")
	if err := os.WriteFile(audit, []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &migrateReader{log: filepath.Join(dir, "audit.log")}
	r.Cluster = cluster.Start(t, cluster.Options{
		Users: map[string][]string{"reader": nil, "poor": nil, "half": nil, "nobody": nil},
		Flags: []string{"--audit-policy-file=" + audit, "--audit-log-path=" + r.log},
	})
	r.Apply(t, things)
	defineGatekeeper(t, r.Cluster)
	r.Apply(t, fmt.Sprintf(reading, "reader", "namespaces, pods, configmaps, secrets"))
	r.Apply(t, fmt.Sprintf(reading, "poor", "namespaces, pods, configmaps"))
	r.Apply(t, fmt.Sprintf(reading, "half", "pods"))
	r.Apply(t, someMutators)
	for i := range manyConfigMaps {
		name := fmt.Sprintf("many-%04d", i)
		if _, err := r.Kubernetes.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("mutators", r.mutators)
	t.Run("objects", r.objects)
	t.Run("mutators of a file", r.files)
	t.Run("without rights on some", r.poor)
	t.Run("without rights", r.nobody)
	t.Run("unknown", r.unknown)
	t.Run("only read", r.onlyRead)
	t.Run("unreachable", r.unreachable)
}

type migrateReader struct {
	*cluster.Cluster
	log string // the audit log of the user reader
}

// migrate runs mapd migrate gatekeeper on a cluster as somebody.
func migrate(t *testing.T, c *cluster.Cluster, who *rest.Config, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return migrateWith(t, c.Kubeconfig(t, who, ""), args...)
}

func migrateWith(t *testing.T, kubeconfig string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), cluster.Binary(t), append([]string{"migrate", "gatekeeper", "--kubeconfig", kubeconfig}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// An auditEvent is a request that the API server has answered.
type auditEvent struct {
	Verb       string `json:"verb"`
	RequestURI string `json:"requestURI"`
}

// asked are the requests of the user reader.
func (r *migrateReader) asked(t *testing.T) []auditEvent {
	t.Helper()
	data, err := os.ReadFile(r.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var all []auditEvent
	for line := range bytes.Lines(data) {
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			break // it is being written
		}
		all = append(all, e)
	}
	return all
}

// pages waits until the path has been listed and returns the queries.
func (r *migrateReader) pages(t *testing.T, path string, n int) []url.Values {
	t.Helper()
	var all []url.Values
	// The log is written after the answer.
	cluster.Eventually(t, cluster.Patience, fmt.Sprintf("%d pages of %s", n, path), func(context.Context) error {
		all = nil
		for _, e := range r.asked(t) {
			u, err := url.Parse(e.RequestURI)
			if err != nil {
				t.Fatal(err)
			}
			if e.Verb == "list" && u.Path == path {
				all = append(all, u.Query())
			}
		}
		if len(all) < n {
			return fmt.Errorf("there are %d", len(all))
		}
		return nil
	})
	return all
}

// bounded reports whether a list asks for a page.
func bounded(q url.Values) bool {
	limit, err := strconv.Atoi(q.Get("limit"))
	return err == nil && limit > 0 && limit <= 500
}

const mutatorsPath = "/apis/mutations.gatekeeper.sh/v1/"

func (r *migrateReader) mutators(t *testing.T) {
	code, stdout, stderr := migrate(t, r.Cluster, r.User(t, "reader"), "--from-cluster")
	if code != 0 || strings.Count(stdout, "kind: MutatingAdmissionPolicy\n") != 3 {
		t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
	// There are two, of which Gatekeeper reads one.
	if want := "note: the Config keeps mutation from the namespaces legacy-*: the policies exclude them\n"; !strings.Contains(stderr, want) {
		t.Errorf("nothing says %q:\n%s", want, stderr)
	}
	for _, q := range r.pages(t, mutatorsPath+"assign", 1) {
		if !bounded(q) {
			t.Errorf("Assigns are read with limit %q", q.Get("limit"))
		}
	}
	if n := len(r.pages(t, "/api/v1/configmaps", 0)); n > 0 {
		t.Error("objects are read without --verify")
	}
}

// There are more objects than fit on a page.
func (r *migrateReader) objects(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	code, _, stderr := migrate(t, r.Cluster, r.User(t, "reader"), "--from-cluster", "--verify", "--generated", "20", "--report", file)
	if code != 0 {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	total := 0
	for _, resource := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "secrets"}, {Version: "v1", Resource: "pods"},
		{Group: "example.com", Version: "v1", Resource: "things"},
	} {
		list, err := r.Dynamic.Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		total += len(list.Items)
	}
	for _, want := range []string{
		fmt.Sprintf("both sides ran on %d live objects, 20 generated objects each (seed 1):", total),
		fmt.Sprintf("AssignMetadata/owner: no difference in %d objects", total+20),
		"all 3 policies together: no difference in",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("nothing says %q:\n%s", want, stderr)
		}
	}
	pages := r.pages(t, "/api/v1/configmaps", 2)
	for i, q := range pages {
		if !bounded(q) || q.Has("continue") != (i > 0) {
			t.Errorf("page %d of %d of the ConfigMaps is read by %v", i+1, len(pages), q)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Mutators     []struct{ Mutator, Verdict string }
		Verification struct{ Live int }
	}
	if err := json.Unmarshal(data, &report); err != nil || report.Verification.Live != total || len(report.Mutators) != 3 {
		t.Errorf("%v\n%s", err, data)
	}
	if strings.Contains(stderr, "hush") || bytes.Contains(data, []byte("aHVzaA")) {
		t.Error("what a Secret holds is told")
	}
}

// Mutators of files may be tried on the objects of a cluster, which then need no
// Gatekeeper.
func (r *migrateReader) files(t *testing.T) {
	mutators, objects := len(r.pages(t, mutatorsPath+"assign", 0)), len(r.pages(t, "/api/v1/configmaps", 0))
	file := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(file, []byte(ownerLabel("me")), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := migrate(t, r.Cluster, r.User(t, "reader"), "-p", file, "--from-cluster", "--verify", "--generated", "0")
	if code != 0 || !strings.Contains(stderr, "\nnote: Events were not compared\n") || !strings.Contains(stderr, "AssignMetadata/owner: no difference in ") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	r.pages(t, "/api/v1/configmaps", objects+2) // after which the log has all before
	if n := len(r.pages(t, mutatorsPath+"assign", 0)); n != mutators {
		t.Error("the cluster's mutators are read, too")
	}
}

// Objects that may not be read are left out, and a note says so.
func (r *migrateReader) poor(t *testing.T) {
	code, _, stderr := migrate(t, r.Cluster, r.User(t, "poor"), "--from-cluster", "--verify", "--generated", "0")
	if code != 0 || !strings.Contains(stderr, `note: not compared: list secrets: secrets is forbidden: User "poor" cannot list resource "secrets"`) {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
}

// Mutators that may not be read are what it is all about; and policies written
// without the cluster's Namespaces and kinds could be wrong.
func (r *migrateReader) nobody(t *testing.T) {
	code, stdout, stderr := migrate(t, r.Cluster, r.User(t, "nobody"), "--from-cluster")
	if code != 4 || stdout != "" || !strings.HasPrefix(stderr, "mapd: migrate gatekeeper: list assign.mutations.gatekeeper.sh: ") {
		t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
	code, stdout, stderr = migrate(t, r.Cluster, r.User(t, "half"), "--from-cluster")
	if code != 4 || stdout != "" || !strings.HasPrefix(stderr, "mapd: migrate gatekeeper: list namespaces: ") {
		t.Errorf("without Namespaces: exit code %d\n%s\n%s", code, stdout, stderr)
	}
}

func (r *migrateReader) unknown(t *testing.T) {
	if code, _, stderr := migrate(t, r.Cluster, r.WithToken("none"), "--from-cluster"); code != 4 {
		t.Errorf("with a wrong token: exit code %d\n%s", code, stderr)
	}
	// That is nothing that a cluster has said.
	if code, _, stderr := migrateWith(t, filepath.Join(t.TempDir(), "none"), "--from-cluster"); code != 2 {
		t.Errorf("without a kubeconfig: exit code %d\n%s", code, stderr)
	}
}

// The user reader had no right to write, and has not tried to.
func (r *migrateReader) onlyRead(t *testing.T) {
	all := r.asked(t)
	if len(all) == 0 {
		t.Error("no request is in the log")
	}
	for _, e := range all {
		if e.Verb != "get" && e.Verb != "list" {
			t.Errorf("asked to %s %s", e.Verb, e.RequestURI)
		}
	}
}

func (r *migrateReader) unreachable(t *testing.T) {
	r.APIServer.Stop(t, time.Minute)
	code, stdout, stderr := migrate(t, r.Cluster, r.User(t, "reader"), "--from-cluster")
	if code != 4 || stdout != "" {
		t.Errorf("exit code %d\n%s\n%s", code, stdout, stderr)
	}
}
