//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// configured is what mapd is responsible for in its webhook configurations.
type configured struct {
	Mutating, Validating metav1.ObjectMeta
	Mutators             []admissionregistrationv1.MutatingWebhook
	Validators           []admissionregistrationv1.ValidatingWebhook
}

func readConfigured(ctx context.Context, m *cluster.Mapd) (configured, error) {
	mutating, err := m.Kubernetes.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, webhookconfig.ConfigurationName, metav1.GetOptions{})
	if err != nil {
		return configured{}, err
	}
	validating, err := m.Kubernetes.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, webhookconfig.ValidationName, metav1.GetOptions{})
	if err != nil {
		return configured{}, err
	}
	// Identity and history are not mapd's to keep.
	meta := func(m metav1.ObjectMeta) metav1.ObjectMeta {
		annotations := map[string]string{webhookconfig.InstallationAnnotation: m.Annotations[webhookconfig.InstallationAnnotation]}
		return metav1.ObjectMeta{Name: m.Name, Labels: m.Labels, Annotations: annotations, OwnerReferences: m.OwnerReferences,
			Finalizers: m.Finalizers, DeletionTimestamp: m.DeletionTimestamp}
	}
	return configured{meta(mutating.ObjectMeta), meta(validating.ObjectMeta), mutating.Webhooks, validating.Webhooks}, nil
}

// awaitConfigured waits until the configurations are as they were.
func awaitConfigured(t *testing.T, m *cluster.Mapd, what string, want configured) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, "mapd to repair what happened: "+what, func(ctx context.Context) error {
		got, err := readConfigured(ctx, m)
		if diff := cmp.Diff(want, got); err == nil && diff != "" {
			err = errors.New("(-want +got):\n" + diff)
		}
		return err
	})
}

// TestForeign lets somebody else change what mapd has written.
func TestForeign(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policyFile, auditLog := filepath.Join(dir, "audit.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policyFile, []byte(documented(t, "docs/operate/secure.md", "apiVersion: audit.k8s.io/v1")), 0o600); err != nil {
		t.Fatal(err)
	}
	m := cluster.Installed(t, cluster.InstallOptions{Replicas: 2, Cluster: cluster.Options{
		Flags: []string{"--audit-policy-file=" + policyFile, "--audit-log-path=" + auditLog},
	}})
	m.NeedProcesses(t)
	m.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: stream}\n")
	m.Apply(t, policiesYAML(madePolicy{name: "own", resource: "resourcequotas", mutation: labelled("own")}, madePolicy{name: "also", failure: "Ignore", mutation: labelled("also")}))
	acts(t, m, "resourcequotas", "own")
	var good configured
	cluster.Eventually(t, cluster.Patience, "two mutating and three validating entries", func(ctx context.Context) (err error) {
		if good, err = readConfigured(ctx, m); err == nil && (len(good.Mutators) != 2 || len(good.Validators) != 3) {
			err = fmt.Errorf("%d and %d", len(good.Mutators), len(good.Validators))
		}
		return err
	})
	if good.Mutating.Annotations[webhookconfig.InstallationAnnotation] != "mapd-system/mapd" {
		t.Errorf("annotations %v", good.Mutating.Annotations)
	}
	t.Run("edits", func(t *testing.T) { foreignEdits(t, m, good) })
	t.Run("own requests", func(t *testing.T) { foreignBlock(t, m, good) })
	t.Run("lease", func(t *testing.T) { foreignLease(t, m, good) })
	t.Run("older", func(t *testing.T) { olderLayout(t, m, good) })
	t.Run("installations", func(t *testing.T) { twoInstallations(t, m, good) })
	t.Run("audit", func(t *testing.T) { audited(t, auditLog) })
}

// documented is the block of a document that is indented and begins with a line.
func documented(t *testing.T, file, first string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(cluster.Root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), "\n    "+first+"\n")
	if !ok {
		t.Fatalf("%s has no block that begins with %s", file, first)
	}
	block := first + "\n"
	for line := range strings.Lines(rest) {
		line, ok := strings.CutPrefix(line, "    ")
		if !ok {
			break
		}
		block += line
	}
	return block
}

// audited looks in the log that the documented policy makes for what was done.
func audited(t *testing.T, file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for line := range strings.Lines(string(data)) {
		var e struct {
			Verb          string
			User          struct{ Username string }
			ObjectRef     struct{ Resource, Subresource string }
			RequestObject json.RawMessage // of a JSON patch it is a list
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		by := "somebody"
		if e.User.Username == "system:serviceaccount:mapd-system:mapd" {
			by = "mapd"
		}
		found[strings.TrimSuffix(fmt.Sprintf("%s %s %s/%s", by, e.Verb, e.ObjectRef.Resource, e.ObjectRef.Subresource), "/")]++
		if by == "mapd" && e.Verb == "update" && strings.Contains(string(e.RequestObject), `"clientConfig":{"service":`) {
			found["mapd says where it is"]++
		}
	}
	for _, want := range []string{"mapd update mutatingwebhookconfigurations", "mapd update validatingwebhookconfigurations", "mapd says where it is",
		"somebody patch mutatingwebhookconfigurations", "somebody create serviceaccounts/token", "mapd patch mutatingadmissionpolicies/status"} {
		if found[want] == 0 {
			t.Errorf("the audit log has no %q: %v", want, found)
		}
	}
	for what, n := range found {
		if strings.Contains(what, "leases") && strings.HasPrefix(what, "mapd") {
			t.Errorf("the audit log has %d of %q", n, what)
		}
	}
}

func foreignEdits(t *testing.T, m *cluster.Mapd, good configured) {
	mutating := m.Kubernetes.AdmissionregistrationV1().MutatingWebhookConfigurations()
	validating := m.Kubernetes.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	options := metav1.PatchOptions{FieldManager: "somebody"}
	var times []string
	edit := func(what string, do func(context.Context) error) {
		t.Helper()
		if err := do(t.Context()); err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		start := time.Now()
		awaitConfigured(t, m, what, good)
		times = append(times, fmt.Sprintf("%s %s", what, since(start)))
	}
	both := func(what string, kind types.PatchType, text string) {
		t.Helper()
		edit(what, func(ctx context.Context) error {
			_, err := mutating.Patch(ctx, webhookconfig.ConfigurationName, kind, []byte(text), options)
			return err
		})
		edit(what+" (validating)", func(ctx context.Context) error {
			_, err := validating.Patch(ctx, webhookconfig.ValidationName, kind, []byte(text), options)
			return err
		})
	}
	set := func(path, value string) string {
		return fmt.Sprintf(`[{"op": "add", "path": "/webhooks/0/%s", "value": %s}]`, path, value)
	}
	const another = `{"webhooks": [{"name": "another.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None",
		"admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
		"rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}]}]}`
	// What follows a url was never repaired: the order matters.
	both("a url in the place of the service", types.JSONPatchType, set("clientConfig", `{"url": "https://127.0.0.1:1/"}`))
	both("another service", types.JSONPatchType, set("clientConfig/service/name", `"other"`))
	both("another failurePolicy", types.JSONPatchType, set("failurePolicy", `"Ignore"`))
	both("no caBundle", types.JSONPatchType, `[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]`)
	both("no rules", types.JSONPatchType, set("rules", `[]`))
	both("rules", types.JSONPatchType, set("rules", `[{"apiGroups": ["apps"], "apiVersions": ["*"], "resources": ["*"], "operations": ["CREATE"]}]`))
	both("conditions", types.JSONPatchType, set("matchConditions", `[{"name": "never", "expression": "false"}]`))
	both("labels", types.MergePatchType, `{"metadata": {"labels": {"app.kubernetes.io/name": "x", "app.kubernetes.io/part-of": null}}}`)
	both("namespaceSelector", types.JSONPatchType, set("namespaceSelector", `{"matchLabels": {"a": "b"}}`))
	both("objectSelector", types.JSONPatchType, set("objectSelector", `{"matchLabels": {"a": "b"}}`))
	both("timeoutSeconds", types.JSONPatchType, set("timeoutSeconds", `30`))
	both("sideEffects", types.JSONPatchType, set("sideEffects", `"NoneOnDryRun"`))
	both("matchPolicy", types.JSONPatchType, set("matchPolicy", `"Exact"`))
	both("an entry more", types.StrategicMergePatchType, another)
	both("an entry less", types.JSONPatchType, `[{"op": "remove", "path": "/webhooks/1"}]`)
	both("no entries", types.MergePatchType, `{"webhooks": null}`)
	both("no installation", types.MergePatchType, `{"metadata": {"annotations": null}}`)
	both("an installation that is not there", types.MergePatchType, `{"metadata": {"annotations": {"mapd.dev/installation": "nowhere/mapd"}}}`)
	both("no owner", types.MergePatchType, `{"metadata": {"ownerReferences": null}}`)
	both("one owner more", types.JSONPatchType, `[{"op": "add", "path": "/metadata/ownerReferences/-", "value": {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}}]`)
	both("a finalizer", types.MergePatchType, `{"metadata": {"finalizers": ["example.com/mine"]}}`)
	both("no managedFields", types.JSONPatchType, `[{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}, {"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": 7}]`)
	edit("reinvocationPolicy", func(ctx context.Context) error {
		_, err := mutating.Patch(ctx, webhookconfig.ConfigurationName, types.JSONPatchType, []byte(set("reinvocationPolicy", `"IfNeeded"`)), options)
		return err
	})
	edit("an apply by another manager", func(ctx context.Context) error {
		_, err := mutating.Patch(ctx, webhookconfig.ConfigurationName, types.ApplyPatchType, fmt.Appendf(nil,
			`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": %q}, "webhooks": [
			{"name": %q, "matchConditions": [{"name": "never", "expression": "false"}], "objectSelector": {"matchLabels": {"a": "b"}},
			"clientConfig": {"service": {"namespace": "default", "name": "x"}}, "sideEffects": "None", "admissionReviewVersions": ["v1"]}]}`,
			webhookconfig.ConfigurationName, good.Mutators[0].Name), metav1.PatchOptions{FieldManager: "somebody", Force: new(true)})
		return err
	})
	edit("a deletion that a finalizer stops", func(ctx context.Context) error {
		if _, err := mutating.Patch(ctx, webhookconfig.ConfigurationName, types.MergePatchType, []byte(`{"metadata": {"finalizers": ["example.com/mine"]}}`), options); err != nil {
			return err
		}
		return mutating.Delete(ctx, webhookconfig.ConfigurationName, metav1.DeleteOptions{})
	})
	edit("deletion", func(ctx context.Context) error {
		return mutating.Delete(ctx, webhookconfig.ConfigurationName, metav1.DeleteOptions{})
	})
	edit("deletion (validating)", func(ctx context.Context) error {
		return validating.Delete(ctx, webhookconfig.ValidationName, metav1.DeleteOptions{})
	})
	secrets := m.Kubernetes.CoreV1().Secrets(cluster.Namespace)
	for what, text := range map[string]string{"an empty Secret": `{"data": null}`, "a spoilt Secret": `{"data": {"tls.key": "eA=="}}`} {
		if _, err := secrets.Patch(t.Context(), "mapd-tls", types.MergePatchType, []byte(text), options); err != nil {
			t.Fatal(err)
		}
		cluster.Eventually(t, cluster.Patience, what, func(ctx context.Context) error {
			s, err := secrets.Get(ctx, "mapd-tls", metav1.GetOptions{})
			if err == nil && len(s.Data["tls.key"]) < 10 {
				err = errors.New("it is not repaired")
			}
			return err
		})
		awaitConfigured(t, m, what, good)
	}
	if err := secrets.Delete(t.Context(), "mapd-tls", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, cluster.Patience, "the Secret to come back", func(ctx context.Context) error {
		_, err := secrets.Get(ctx, "mapd-tls", metav1.GetOptions{})
		return err
	})
	awaitConfigured(t, m, "the Secret is deleted", good)
	t.Logf("repaired: %s", strings.Join(times, ", "))
	acts(t, m, "resourcequotas", "own")
}

// foreignBlock adds an entry that refuses what mapd needs to be able to repair it,
// while nobody holds the lease.
func foreignBlock(t *testing.T, m *cluster.Mapd, good configured) {
	replicas := m.Replicas()
	for _, r := range replicas {
		r.Kill()
	}
	const block = `{"webhooks": [{"name": "block.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None",
		"admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
		"rules": [{"apiGroups": ["coordination.k8s.io", "events.k8s.io"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}]}]}`
	if _, err := m.Kubernetes.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(t.Context(), webhookconfig.ConfigurationName,
		types.StrategicMergePatchType, []byte(block), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, cluster.Patience, "leases to be refused", func(ctx context.Context) error {
		_, err := m.Kubernetes.CoordinationV1().Leases(cluster.Namespace).Patch(ctx, cluster.Name, types.MergePatchType,
			[]byte(`{"metadata": {"labels": {"x": "y"}}}`), metav1.PatchOptions{})
		if err == nil {
			return errors.New("it was written")
		}
		return nil
	})
	for _, r := range replicas {
		r.Start(t)
	}
	awaitConfigured(t, m, "an entry refuses the lease", good)
	m.WaitReady(t)
	if !strings.Contains(m.Logs(t), "mapd's own requests; these are exempt again") {
		t.Error("no log says that the entry stood in the way")
	}
}

// foreignLease writes leases that nobody of mapd would write.
func foreignLease(t *testing.T, m *cluster.Mapd, good configured) {
	leases := m.Kubernetes.CoordinationV1().Leases(cluster.Namespace)
	later := metav1.NewMicroTime(time.Now().Add(50 * 365 * 24 * time.Hour))
	for what, spec := range map[string]coordinationv1.LeaseSpec{
		"held by somebody for decades": {HolderIdentity: new("somebody"), LeaseDurationSeconds: new(int32(1 << 30)), AcquireTime: &later, RenewTime: &later, LeaseTransitions: new(int32(1))},
		"with all its transitions used": {HolderIdentity: new("somebody"), LeaseDurationSeconds: new(int32(1 << 30)), RenewTime: &later,
			LeaseTransitions: new(int32(1<<31 - 1))},
		"empty": {},
	} {
		cluster.Eventually(t, cluster.Patience, "to write a lease", func(ctx context.Context) error {
			l, err := leases.Get(ctx, cluster.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			l.Spec = spec
			_, err = leases.Update(ctx, l, metav1.UpdateOptions{FieldManager: "somebody"})
			return err
		})
		start := time.Now()
		if _, err := m.Kubernetes.AdmissionregistrationV1().MutatingWebhookConfigurations().Patch(t.Context(), webhookconfig.ConfigurationName,
			types.MergePatchType, []byte(`{"webhooks": null}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitConfigured(t, m, "a lease "+what, good)
		cluster.Eventually(t, cluster.Patience, "a replica to hold the lease", func(ctx context.Context) error {
			l, err := leases.Get(ctx, cluster.Name, metav1.GetOptions{})
			if err == nil && (l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "somebody" || *l.Spec.HolderIdentity == "" || *l.Spec.LeaseDurationSeconds > 60) {
				err = fmt.Errorf("it is %+v", l.Spec)
			}
			return err
		})
		t.Logf("a lease %s: held by a replica %s later", what, since(start))
	}
}

// olderLayout puts the configurations into a form of another release: other names
// of entries, no annotation, fields that belong to an apply.
func olderLayout(t *testing.T, m *cluster.Mapd, good configured) {
	replicas := m.Replicas()
	for _, r := range replicas {
		r.Kill()
	}
	mutating := m.Kubernetes.AdmissionregistrationV1().MutatingWebhookConfigurations()
	if err := mutating.Delete(t.Context(), webhookconfig.ConfigurationName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	owner := good.Mutating.OwnerReferences[0]
	old := fmt.Sprintf(`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
		"metadata": {"name": %q, "ownerReferences": [{"apiVersion": "v1", "kind": "Namespace", "name": %q, "uid": %q}]},
		"webhooks": [{"name": "old.mapd.dev", "clientConfig": {"service": {"namespace": "mapd-system", "name": "mapd", "path": "/mutate/old"}},
			"sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Fail",
			"rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["resourcequotas"], "operations": ["CREATE"]}]}]}`,
		webhookconfig.ConfigurationName, owner.Name, owner.UID)
	if _, err := mutating.Patch(t.Context(), webhookconfig.ConfigurationName, types.ApplyPatchType, []byte(old), metav1.PatchOptions{FieldManager: "mapd", Force: new(true)}); err != nil {
		t.Fatal(err)
	}
	for _, r := range replicas {
		r.Start(t)
	}
	awaitConfigured(t, m, "another release wrote the configuration", good)
	m.WaitReady(t)
	acts(t, m, "resourcequotas", "own")
}

// twoInstallations starts a second mapd in another namespace.
func twoInstallations(t *testing.T, m *cluster.Mapd, good configured) {
	const second = "mapd-second"
	m.Apply(t, `
apiVersion: v1
kind: Namespace
metadata: {name: `+second+`}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: second, namespace: `+second+`}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: mapd, namespace: mapd-system}]
`)
	says := func(r *cluster.Replica, want string) {
		t.Helper()
		cluster.Eventually(t, cluster.Patience, r.Name+" to say "+want, func(ctx context.Context) error {
			_, body, err := r.Get(ctx, "/readyz?verbose")
			if err == nil && !strings.Contains(body, want) {
				err = errors.New(body)
			}
			return err
		})
	}
	const passive = "[!] webhook configurations: they belong to the installation "
	other := m.Another(t, second)
	says(other, passive+"mapd-system/mapd, so this one (mapd-second/mapd) writes nothing")
	awaitConfigured(t, m, "a second installation starts", good)
	before := configuration(t, m).Generation
	s := &stream{sender: newSender(t, m.Cluster), namespace: "stream"}
	for i := range 40 {
		if w := s.post(t.Context(), "resourcequotas", ""); !slices.Contains(strings.Fields(w.labels), "own") {
			t.Errorf("write %d beside a second installation: %s", i, w)
		}
	}
	if now := configuration(t, m).Generation; now != before {
		t.Errorf("the configuration was written %d times beside a second installation", now-before)
	}
	cluster.Eventually(t, cluster.Patience, "an event that says whose the configurations are", func(ctx context.Context) error {
		events, err := m.Kubernetes.EventsV1().Events(second).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == "ConfigurationsNotOwned" && strings.Contains(e.Note, "mapd-system/mapd") {
				return nil
			}
		}
		return fmt.Errorf("there are %v", events.Items)
	})

	// With --adopt it takes them; the first one yields, although it goes on running.
	other.Stop(t, cluster.Patience)
	other = m.Another(t, second, "--adopt")
	owned := func(by string) {
		t.Helper()
		cluster.Eventually(t, cluster.Patience, "the configurations to be those of "+by, func(ctx context.Context) error {
			c, err := readConfigured(ctx, m)
			if err != nil {
				return err
			}
			if of := c.Mutating.Annotations[webhookconfig.InstallationAnnotation]; of != by || c.Validating.Annotations[webhookconfig.InstallationAnnotation] != by || len(c.Mutators) != 2 {
				return fmt.Errorf("they are those of %s, with %d entries", of, len(c.Mutators))
			}
			return nil
		})
	}
	owned(second + "/mapd")
	says(holder(t, m), passive+second+"/mapd")
	acts(t, m, "resourcequotas", "own")
	before = configuration(t, m).Generation
	cluster.Always(t, 3*time.Second, "the first installation yields", func(ctx context.Context) error {
		if now := configuration(t, m).Generation; now != before {
			return fmt.Errorf("the configuration was written %d times", now-before)
		}
		return nil
	})

	// The second one goes, and its namespace with it.
	other.Stop(t, cluster.Patience)
	if err := m.Kubernetes.CoreV1().Namespaces().Delete(t.Context(), second, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	owned("mapd-system/mapd")
	t.Logf("taken over %s after the other installation's namespace went", since(start))
	awaitConfigured(t, m, "the other installation is gone", good)
	acts(t, m, "resourcequotas", "own")
}
