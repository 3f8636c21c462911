//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// Exceptions from policies on an API server: who may write one, what it does, and that it ends.
func TestExceptions(t *testing.T) {
	t.Parallel()
	a := &admin{cluster.Installed(t, cluster.InstallOptions{Replicas: 2})}
	a.NeedProcesses(t)
	x := &exceptions{admin: a, namespace: "e2e-exceptions", policy: "e2e-exceptions", resource: api.PolicyResource, group: api.OwnGroup}
	a.namespace(t, x.namespace, map[string]string{"exceptions": "e2e"})
	a.draw(t, drawing{name: x.policy, resources: "configmaps", namespaces: "exceptions: e2e", mutations: []string{label("policy", `"yes"`)}})
	x.becomes(t, "the policy alone", true)
	for _, part := range []part{{"ends", x.ends}, {"tenants", x.tenants}, {"unchecked", x.unchecked}} {
		t.Run(part.name, part.run)
	}
}

// Exceptions from a mutator of Gatekeeper: while mapd runs it, and while it is a policy that the
// API server runs, which knows no exceptions.
func TestExceptionsOfMutators(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Native: true})
	overlay := output(t, exec.Command(cluster.Program(t, "kubectl"), "kustomize", manifests(t, "overlays", "native")))
	g := &movers{&gatekeeperInstall{cluster.Install(t, c, cluster.InstallOptions{Manifest: overlay, Replicas: -1})}, api.NativeGroup}
	a := &admin{g.Mapd}
	x := &exceptions{admin: a, namespace: "e2e-exceptions", policy: "AssignMetadata/e2e-exceptions", resource: "assignmetadata", group: legacy.Group}
	g.define(t)
	a.namespace(t, x.namespace, nil)
	g.Apply(t, `
apiVersion: mutations.gatekeeper.sh/v1
kind: AssignMetadata
metadata: {name: e2e-exceptions}
spec:
  match: {namespaces: [e2e-exceptions], kinds: [{apiGroups: [""], kinds: [ConfigMap]}]}
  location: metadata.labels.policy
  parameters: {assign: {value: "yes"}}
`)
	running := g.AddReplica(t, "--legacy=on")
	g.WaitReady(t)
	x.becomes(t, "the mutator alone", true)
	t.Run("ends", x.ends)
	t.Run("tenants", x.tenants)

	g.AddReplica(t, "--legacy=native")
	g.WaitReady(t)
	g.Remove(t, running)
	g.keeps(t, "assignmetadata-e2e-exceptions")
	x.becomes(t, "the policy in its place", true)
	t.Run("ends as a policy", x.ends)
	// Whoever deletes an exception has the policy back at once, and not at its end.
	if err := x.create(t, x.Config, x.exception("long", time.Now().Add(time.Hour), x.policy)); err != nil {
		t.Fatal(err)
	}
	g.keeps(t)
	x.becomes(t, "the exception holds", false)
	if err := g.state(x.policy, "running", "exception e2e-exceptions/long")(t.Context()); err != nil {
		t.Error(err)
	}
	if err := x.Dynamic.Resource(api.Exceptions).Namespace(x.namespace).Delete(t.Context(), "long", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.keeps(t, "assignmetadata-e2e-exceptions")
	x.becomes(t, "it is deleted", true)
}

type exceptions struct {
	*admin
	namespace string
	// policy is as exceptions name it; the verb except is asked of resource in group.
	policy, resource, group string
}

// name is that of the policy's object.
func (x *exceptions) name() string { return x.policy[strings.Index(x.policy, "/")+1:] }

// exception is one of the namespace from policies.
func (x *exceptions) exception(name string, until time.Time, policies ...string) *unstructured.Unstructured {
	var names []any
	for _, p := range policies {
		names = append(names, p)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"policies": names, "reason": "e2e", "owner": "payments", "until": until.Format(time.RFC3339),
		"match": map[string]any{"objectSelector": map[string]any{"matchLabels": map[string]any{"age": "old"}}},
	}}}
	u.SetAPIVersion(api.ExceptionGroup + "/" + api.ExceptionVersion)
	u.SetKind(api.ExceptionKind)
	u.SetNamespace(x.namespace)
	u.SetName(name)
	return u
}

func (x *exceptions) create(t *testing.T, config *rest.Config, u *unstructured.Unstructured) error {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = x.Dynamic.Resource(api.Exceptions).Namespace(x.namespace).Delete(context.Background(), u.GetName(), metav1.DeleteOptions{})
	})
	_, err = client.Resource(api.Exceptions).Namespace(x.namespace).Create(t.Context(), u, metav1.CreateOptions{})
	return err
}

// becomes waits until the policy changes, or leaves alone, a ConfigMap that is excepted by its label,
// through each replica: the proxy takes them in turn. Others are always changed.
func (x *exceptions) becomes(t *testing.T, what string, applied bool) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, what, func(ctx context.Context) error {
		for _, age := range []string{"old", "old", "new"} {
			o, err := x.Kubernetes.CoreV1().ConfigMaps(x.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-", Labels: map[string]string{"age": age}}},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				return err
			}
			if got := o.Labels["policy"] == "yes"; got != (applied || age == "new") {
				return fmt.Errorf("%s: changed %t", age, got)
			}
		}
		return nil
	})
}

// says waits for the reason of the condition Active.
func (x *exceptions) says(t *testing.T, name, reason, message string) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, name+": "+reason, func(ctx context.Context) error {
		u, err := x.Dynamic.Resource(api.Exceptions).Namespace(x.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, c := range list {
			if c := c.(map[string]any); c["type"] == api.ExceptionActive && c["reason"] == reason && strings.Contains(fmt.Sprint(c["message"]), message) {
				return nil
			}
		}
		return fmt.Errorf("status %v", u.Object["status"])
	})
}

// ends: an exception holds at once and ends by the clock, with nothing restarted.
func (x *exceptions) ends(t *testing.T) {
	until := time.Now().Add(45 * time.Second).Truncate(time.Second)
	if err := x.create(t, x.Config, x.exception("short", until, x.policy)); err != nil {
		t.Fatal(err)
	}
	x.becomes(t, "the exception holds", false)
	x.says(t, "short", "Active", "holds until "+until.UTC().Format(time.RFC3339))
	if out := x.mustKubectl(t, "", "get", "policyexceptions", "-n", x.namespace, "short"); !strings.Contains(out, "payments") || !strings.Contains(out, "True") {
		t.Errorf("kubectl get: %s", out)
	}
	cluster.Eventually(t, cluster.Patience, "an event says that it ends", func(ctx context.Context) error {
		list, err := x.Kubernetes.EventsV1().Events(x.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == "ExceptionEnds" && e.Regarding.Name == "short" && strings.Contains(e.Note, "owner payments") {
				return nil
			}
		}
		return fmt.Errorf("%d events", len(list.Items))
	})
	x.becomes(t, "the exception has ended", true)
	if early := time.Until(until); early > 0 {
		t.Errorf("it ended %v early", early)
	}
	x.says(t, "short", "Ended", "it held until")
	if err := x.create(t, x.Config, x.exception("unknown", time.Now().Add(time.Hour), "nobody")); err != nil {
		t.Fatal(err)
	}
	x.says(t, "unknown", "NoSuchPolicy", "policy nobody")
}

// tenants: a tenant may except what the verb except allows in his namespace, and nothing else.
func (x *exceptions) tenants(t *testing.T) {
	x.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: writers, namespace: %[1]s}
rules:
- {apiGroups: [mapd.dev], resources: [policyexceptions, policyexceptions/status], verbs: [get, create, update, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: writers, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: writers}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
`, x.namespace))
	alice := x.As("alice")
	hour := time.Now().Add(time.Hour)
	refused := fmt.Sprintf(`user "alice" must have the verb "except" on %s %q of %s in namespace %q`, x.resource, x.name(), x.group, x.namespace)
	cluster.Eventually(t, cluster.Patience, "a tenant without the verb is refused", func(context.Context) error {
		err := x.create(t, alice, x.exception("alice", hour, x.policy))
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), refused) {
			return fmt.Errorf("created: %v", err)
		}
		return nil
	})
	x.Apply(t, fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: except, namespace: %[1]s}
rules:
- {apiGroups: [%[2]s], resources: [%[3]s], resourceNames: [%[4]s], verbs: [except]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: except, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: except}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]
`, x.namespace, x.group, x.resource, x.name()))
	cluster.Eventually(t, cluster.Patience, "a tenant with the verb", func(context.Context) error {
		err := x.create(t, alice, x.exception("alice", hour, x.policy))
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	x.becomes(t, "the tenant's exception holds", false)
	if err := x.create(t, alice, x.exception("other", hour, x.policy, "others")); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `"others"`) {
		t.Errorf("another policy as well: %v", err)
	}
	endless := x.exception("endless", hour, x.policy)
	unstructured.RemoveNestedField(endless.Object, "spec", "until")
	if err := x.create(t, alice, endless); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.until: Required value") {
		t.Errorf("without an end: %v", err)
	}
	client, err := dynamic.NewForConfig(alice)
	if err != nil {
		t.Fatal(err)
	}
	forged := []byte(`{"status": {"allowed": {"digest": "0", "user": "admin"}}}`)
	if _, err := client.Resource(api.Exceptions).Namespace(x.namespace).Patch(t.Context(), "alice", "application/merge-patch+json", forged, metav1.PatchOptions{}, "status"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "only mapd writes status.allowed") {
		t.Errorf("a forged status: %v", err)
	}
	if err := x.Dynamic.Resource(api.Exceptions).Namespace(x.namespace).Delete(t.Context(), "alice", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	x.becomes(t, "it is deleted", true)
}

// unchecked: while mapd is away nobody writes an exception, and one that came while nobody was
// asked does not hold.
func (x *exceptions) unchecked(t *testing.T) {
	x.Scale(t, 0)
	hour := time.Now().Add(time.Hour)
	if err := x.create(t, x.Config, x.exception("away", hour, x.policy)); !apierrors.IsInternalError(err) {
		t.Errorf("while mapd is away: %v", err)
	}
	if err := x.Kubernetes.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), "mapd.dev", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, cluster.Patience, "nobody is asked", func(context.Context) error {
		err := x.create(t, x.Config, x.exception("unchecked", hour, x.policy))
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	x.Scale(t, 1)
	x.says(t, "unchecked", "NotAllowed", "nobody has checked whether its writer may except the policies")
	x.becomes(t, "it does not hold", true)
}
