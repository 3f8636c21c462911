//go:build e2e

package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	shipped "github.com/mapd-project/mapd/manifests"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// everything is a policy that promises a lot: that nothing at all is written
// without it.
var everything = drawing{
	name: "e2e-everything", groups: `"*"`, versions: `"*"`, resources: `"*/*"`, operations: `"*"`,
	mutations: []string{label("everything", `"yes"`)},
}

// TestLockOut has such a policy and no mapd. There must be ways back.
func TestLockOut(t *testing.T) {
	t.Parallel()
	c, before := emptyCluster(t)
	a := &admin{cluster.Install(t, c, cluster.InstallOptions{})}

	params := drawing{
		name: "e2e-params", resources: "secrets", namespaces: "e2e: none", paramKind: "{apiVersion: v1, kind: ConfigMap}",
		paramRef: "{name: x, namespace: default, parameterNotFoundAction: Allow}", mutations: []string{label("a", `"b"`)},
	}
	a.mustKubectl(t, everything.yaml()+params.yaml(), "apply", "-f", "-")
	a.writes(t, "the policy acts", true)

	a.Scale(t, 0)
	t.Run("what is refused", a.whatIsRefused)
	t.Run("what is not", a.whatIsNotRefused)
	t.Run("policies", func(t *testing.T) { a.policiesWhileDown(t, params) })
	t.Run("doctor and install know", a.knowWhy)

	// Ways back: mapd itself.
	a.Scale(t, 1)
	a.writes(t, "after scaling up", true)

	// The configuration.
	a.Scale(t, 0)
	a.refuses(t, "scaled to zero again")
	a.mustKubectl(t, "", "delete", "mutatingwebhookconfiguration", "000.mapd.dev")
	a.writes(t, "after deleting the configuration", false)
	a.Scale(t, 1)
	a.writes(t, "when mapd is back", true)

	// The policy, which works once there is a mapd that takes the entry away.
	a.Scale(t, 0)
	a.mustKubectl(t, "", "delete", "map,mapb", everything.name)
	a.refuses(t, "the policy is gone and the entry is not")
	a.Scale(t, 1)
	a.writes(t, "the entry goes with mapd there", false)
	a.mustKubectl(t, everything.yaml(), "apply", "-f", "-")
	a.writes(t, "the policy acts again", true)

	// All of it.
	a.Scale(t, 0)
	a.refuses(t, "scaled to zero, for the last time")
	start := time.Now()
	if out := a.mapd(t, "uninstall", "--purge"); out.code != 0 || !strings.Contains(out.stdout, "mutatingwebhookconfiguration.admissionregistration.k8s.io/000.mapd.dev deleted\n") {
		t.Fatal(out)
	}
	t.Logf("mapd uninstall took %s", time.Since(start).Round(time.Millisecond))
	a.writes(t, "after mapd uninstall", false)
	a.nothingLeft(t, before)
}

// configMap makes one in a namespace, in a dry run.
func (a *admin) configMap(ctx context.Context, namespace string) (metav1.Object, error) {
	return a.Kubernetes.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

// writes waits until writes pass, and are mutated or not.
func (a *admin) writes(t *testing.T, when string, mutated bool) {
	t.Helper()
	want := ""
	if mutated {
		want = "yes"
	}
	start := time.Now()
	cluster.Eventually(t, cluster.Patience, "writes, "+when, func(ctx context.Context) error {
		o, err := a.configMap(ctx, "default")
		if err != nil {
			return err
		}
		return has(o, "everything", want)
	})
	t.Logf("%s: %s", when, time.Since(start).Round(time.Millisecond))
}

// refuses fails the test unless a write is refused, in time and with a reason.
func (a *admin) refuses(t *testing.T, when string) {
	t.Helper()
	start := time.Now()
	_, err := a.configMap(t.Context(), "default")
	if err == nil || !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), `failed calling webhook "fail.never.mapd.dev"`) {
		t.Errorf("%s: a write got %v, want the name of the webhook that cannot be called", when, err)
	}
	// Nobody listens, so that no timeout is waited for.
	if took := time.Since(start); took > slack {
		t.Errorf("%s: a write was refused after %s", when, took)
	}
}

func (a *admin) mustKubectl(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	out := a.kubectl(t, stdin, args...)
	if out.code != 0 {
		t.Fatal(out)
	}
	return out.stdout
}

func (a *admin) whatIsRefused(t *testing.T) {
	a.refuses(t, "scaled to zero")
	for _, args := range [][]string{
		{"-n", "default", "create", "configmap", "e2e"},
		{"create", "namespace", "e2e"},
		{"create", "clusterrole", "e2e", "--verb=get", "--resource=pods"},
		// Not in a namespace, so not exempt, though it is mapd's.
		{"annotate", "clusterrole", "mapd", "e2e=x"},
		{"annotate", "namespace", "default", "e2e=x"},
	} {
		if out := a.kubectl(t, "", args...); out.code == 0 || !strings.Contains(out.stderr, `failed calling webhook "fail.never.mapd.dev"`) {
			t.Errorf("want a refusal: %s", out)
		}
	}
}

func (a *admin) whatIsNotRefused(t *testing.T) {
	for _, args := range [][]string{
		{"-n", "default", "get", "configmaps"},
		{"auth", "can-i", "create", "pods"},
		{"-n", "kube-system", "create", "configmap", "e2e"},
		{"-n", "kube-system", "annotate", "configmap", "e2e", "e2e=x"},
		{"-n", "mapd-system", "create", "configmap", "e2e"},
		{"-n", "mapd-system", "annotate", "role", "mapd", "e2e=x"},
		{"-n", "mapd-system", "set", "env", "deployment/mapd", "E2E=x"},
		{"-n", "mapd-system", "scale", "deployment/mapd", "--replicas=3"},
		{"-n", "mapd-system", "delete", "secret", "mapd-tls"},
		{"annotate", "namespace", "mapd-system", "e2e=x"},
		{"-n", "default", "delete", "configmap", "none", "--ignore-not-found"},
		{"annotate", "mutatingwebhookconfiguration", "000.mapd.dev", "e2e=x"},
		// A new namespace cannot be made; a token review or access review of
		// anybody else can.
		{"auth", "can-i", "create", "pods", "--as", "alice"},
	} {
		if out := a.kubectl(t, "", args...); out.stderr != "" && !strings.HasPrefix(out.stderr, "No resources found") || out.code != 0 && args[0] != "auth" {
			t.Error(out)
		}
	}
	// What kubelets write to stay alive.
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "e2e"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: new("e2e")}}
	if _, err := a.Kubernetes.CoordinationV1().Leases("kube-node-lease").Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

// policiesWhileDown edits and deletes policies that nobody can check.
func (a *admin) policiesWhileDown(t *testing.T, params drawing) {
	edited := everything
	edited.mutations = []string{label("everything", `"yes"`), label("edited", `"yes"`)}
	other := drawing{name: "e2e-other", resources: "secrets", namespaces: "e2e: none", mutations: []string{label("a", `"b"`)}}
	a.mustKubectl(t, edited.yaml(), "apply", "-f", "-")
	a.mustKubectl(t, other.yaml(), "apply", "-f", "-")
	a.mustKubectl(t, "", "label", "mapb", other.name, "e2e=x")
	a.mustKubectl(t, "", "delete", "map,mapb", other.name)

	// With parameters it is a matter of the writer's rights, which nobody can check.
	changed := params
	changed.mutations = []string{label("a", "params.data.b")}
	out := a.kubectl(t, changed.policyYAML(), "apply", "-f", "-")
	if out.code == 0 || !strings.Contains(out.stderr, `failed calling webhook "params.validate.mapd.dev"`) {
		t.Errorf("want a refusal: %s", out)
	}
	// Labels are not, and neither is taking it away.
	a.mustKubectl(t, "", "label", "map", params.name, "e2e=x")
	a.mustKubectl(t, "", "label", "mapb", params.name, "e2e=x")
	a.mustKubectl(t, "", "delete", "mapb", params.name)
	a.mustKubectl(t, "", "delete", "map", params.name)
	a.mustKubectl(t, everything.yaml(), "apply", "-f", "-")
}

// knowWhy asks mapd's own commands.
func (a *admin) knowWhy(t *testing.T) {
	out := a.mapd(t, "doctor")
	if out.code != 1 || !strings.Contains(out.stdout, "× API server to mapd: ") || !strings.Contains(out.stdout, "kubectl delete mutatingwebhookconfiguration 000.mapd.dev lets it pass until mapd is back") {
		t.Errorf("want an × and advice: %s", out)
	}
	out = a.mapd(t, "install", "--timeout", "20s")
	if out.code != 1 || !strings.Contains(out.stderr, `failed calling webhook "fail.never.mapd.dev"`) || !strings.Contains(out.stderr, "mapd uninstall makes way and keeps the policies") {
		t.Errorf("want an error and advice: %s", out)
	}
}

// emptyCluster is one that nobody has used, and the objects that are there.
func emptyCluster(t *testing.T) (*cluster.Cluster, map[string]schema.GroupVersionResource) {
	t.Helper()
	c := cluster.Start(t, cluster.Options{})
	var before map[string]schema.GroupVersionResource
	cluster.Eventually(t, cluster.Patience, "what an API server makes by itself", func(context.Context) error {
		before = allObjects(t, c)
		for _, name := range []string{"services default/kubernetes", "endpoints default/kubernetes", "endpointslices.discovery.k8s.io default/kubernetes"} {
			if _, ok := before[name]; !ok {
				return fmt.Errorf("there is no %s", name)
			}
		}
		return nil
	})
	return c, before
}

// allObjects are the names of all objects of a cluster, but for the addresses of
// Services, which a server collects by and by.
func allObjects(t testing.TB, c *cluster.Cluster) map[string]schema.GroupVersionResource {
	t.Helper()
	lists, err := c.Kubernetes.Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	quiet := rest.CopyConfig(c.Config)
	quiet.WarningHandler = rest.NoWarnings{}
	client := c.DynamicClient(t, quiet)
	all := map[string]schema.GroupVersionResource{}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "get"}}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			gvr := gv.WithResource(r.Name)
			if r.Name == "ipaddresses" {
				continue
			}
			objects, err := client.Resource(gvr).List(t.Context(), metav1.ListOptions{})
			if apierrors.IsNotFound(err) {
				continue // the kind has just been deleted
			}
			if err != nil {
				t.Fatalf("list %s: %v", gvr, err)
			}
			for _, o := range objects.Items {
				all[fmt.Sprintf("%s %s/%s", gvr.GroupResource(), o.GetNamespace(), o.GetName())] = gvr
			}
		}
	}
	return all
}

// nothingLeft compares a cluster with what it was before mapd was there. What is
// in the namespace goes with it, which takes a controller that is not there; it
// must not be held up.
func (a *admin) nothingLeft(t *testing.T, before map[string]schema.GroupVersionResource) {
	t.Helper()
	after := allObjects(t, a.Cluster)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, was := before[name]; was || strings.HasPrefix(name, "events") || strings.Contains(name, "/e2e") {
			continue
		}
		resource, place, _ := strings.Cut(name, " ")
		namespace, short, _ := strings.Cut(place, "/")
		switch {
		case resource == "namespaces" && short == "mapd-system":
			ns, err := a.Kubernetes.CoreV1().Namespaces().Get(t.Context(), short, metav1.GetOptions{})
			if err != nil || ns.DeletionTimestamp == nil || len(ns.Finalizers) > 0 {
				t.Errorf("the namespace is not being deleted: %v, finalizers %v", err, ns.Finalizers)
			}
		case namespace == "mapd-system":
			o, err := a.Dynamic.Resource(after[name]).Namespace(namespace).Get(t.Context(), short, metav1.GetOptions{})
			if err != nil || len(o.GetFinalizers()) > 0 {
				t.Errorf("left: %s: %v", name, err)
			}
		default:
			t.Errorf("left: %s", name)
		}
	}
	for name := range before {
		if _, is := after[name]; !is {
			t.Errorf("gone, though it was there before: %s", name)
		}
	}
}

// TestInstallation installs mapd with its own binary, has doctor look at it in
// health and in several sicknesses, removes it and installs it again.
func TestInstallation(t *testing.T) {
	t.Parallel()
	c, before := emptyCluster(t)
	a := &admin{&cluster.Mapd{Cluster: c}}
	if out := a.mapd(t, "doctor"); out.code != 1 || !strings.Contains(out.stdout, "× mapd: not installed\n  → mapd install\n") {
		t.Error(out)
	}
	if out := a.mapd(t, "uninstall"); out.code != 0 || out.stdout != "mapd is not installed\n" {
		t.Error(out)
	}
	if out := a.mapd(t, "install", "--dry-run"); out.code != 0 || out.stdout != string(shipped.Install()) {
		t.Errorf("mapd install --dry-run does not print the manifest: %s", out)
	}

	a = a.install(t)
	d := drawing{name: "e2e-fine", resources: "configmaps", paramKind: "{apiVersion: v1, kind: ConfigMap}",
		paramRef:  "{name: param, namespace: default, parameterNotFoundAction: Deny}",
		mutations: []string{label("everything", "params.data.a")}}
	a.mustKubectl(t, "", "-n", "default", "create", "configmap", "param", "--from-literal=a=yes")
	a.mustKubectl(t, d.yaml(), "apply", "-f", "-")
	a.writes(t, "installed", true)
	t.Run("doctor", a.doctor)

	// mapd is not stopped, and must not restore what is deleted.
	out := a.mapd(t, "uninstall")
	if out.code != 0 || !strings.Contains(out.stdout, "mutatingadmissionpolicies.admissionregistration.mapd.dev kept, and with it 1 policy and 1 binding; --purge deletes all\n") ||
		!strings.Contains(out.stdout, "1 policy and 1 binding not in use any more, as their status says: nothing runs them\n") {
		t.Error(out)
	}
	inOrder(t, out.stdout, "clusterrolebinding.rbac.authorization.k8s.io/mapd deleted", "mutatingwebhookconfiguration.admissionregistration.k8s.io/000.mapd.dev deleted",
		"validatingwebhookconfiguration.admissionregistration.k8s.io/mapd.dev deleted", "deployment.apps/mapd deleted", "namespace/mapd-system deleted")
	cluster.Always(t, time.Second, "the configurations stay away", func(ctx context.Context) error {
		configurations := a.Kubernetes.AdmissionregistrationV1()
		_, err := configurations.MutatingWebhookConfigurations().Get(ctx, "000.mapd.dev", metav1.GetOptions{})
		_, err2 := configurations.ValidatingWebhookConfigurations().Get(ctx, "mapd.dev", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) || !apierrors.IsNotFound(err2) {
			return fmt.Errorf("%v, %v", err, err2)
		}
		return nil
	})
	a.writes(t, "uninstalled", false)
	for _, kind := range []string{"map", "mapb"} {
		if ready := a.mustKubectl(t, "", "get", kind, "e2e-fine", `--output=jsonpath={.status.conditions[?(@.type=="Ready")].status}`); ready != "False" {
			t.Errorf("%s after mapd uninstall: READY %q", kind, ready)
		}
	}
	a.Scale(t, 0)

	// The policies were kept, and act again.
	a.endNamespace(t)
	a.olderParts(t)
	a = a.install(t, "--force-conflicts")
	a.writes(t, "installed again", true)
	a.healthy(t)
	if out := a.mapd(t, "uninstall", "--purge"); out.code != 0 {
		t.Error(out)
	}
	a.writes(t, "uninstalled again", false)
	a.mustKubectl(t, "", "-n", "default", "delete", "configmap", "param")
	a.Scale(t, 0)
	a.nothingLeft(t, before)
	if out := a.mapd(t, "uninstall"); out.code != 0 {
		t.Error(out)
	}
}

func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	at := 0
	for _, p := range parts {
		i := strings.Index(text[at:], p)
		if i < 0 {
			t.Errorf("%q is missing or out of order in\n%s", p, text)
			return
		}
		at += i
	}
}

// install runs mapd install, and meanwhile does what the cluster would: it starts
// a replica when the Deployment is there.
func (a *admin) install(t *testing.T, flags ...string) *admin {
	t.Helper()
	done := make(chan printedBy, 1)
	go func() { done <- a.mapd(t, append([]string{"install", "--timeout", "3m"}, flags...)...) }()
	cluster.Eventually(t, cluster.Patience, "mapd install to apply everything", func(ctx context.Context) error {
		select {
		case out := <-done:
			t.Fatalf("ended too soon: %s", out)
		default:
		}
		_, err := a.Kubernetes.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, "mapd.dev", metav1.GetOptions{})
		return err
	})
	// Of the manifest the namespace is enough to begin with: all is there.
	b := &admin{cluster.Install(t, a.Cluster, cluster.InstallOptions{Manifest: []byte(shippedKinds(t, "Namespace"))})}
	b.rolledOut(t, 2)
	select {
	case out := <-done:
		if out.code != 0 || !strings.HasSuffix(out.stdout, "mapd is installed, and the API server reaches it\n") || !strings.Contains(out.stdout, "deployment.apps/mapd ") {
			t.Fatal(out)
		}
	case <-time.After(cluster.Patience):
		t.Fatal("mapd install did not end")
	}
	return b
}

// olderParts leaves parts of another release in the cluster, applied by kubectl, and
// another installation's claim on the configurations, which mapd install refuses to
// write over without a flag.
func (a *admin) olderParts(t *testing.T) {
	t.Helper()
	a.mustKubectl(t, `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: mapd}
rules:
- {apiGroups: [""], resources: [namespaces], verbs: [get]}
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: mapd}
spec: {priorityLevelConfiguration: {name: workload-low}, matchingPrecedence: 900}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: 000.mapd.dev, annotations: {mapd.dev/installation: default/mapd}}
`, "apply", "-f", "-")
	out := a.mapd(t, "install", "--timeout", "20s")
	if out.code != 1 || out.stdout != "" || !strings.Contains(out.stderr, "belong to the installation default/mapd; nothing was applied\n  only one mapd can have them") {
		t.Errorf("mapd install beside another installation: %s", out)
	}
	if out = a.mapd(t, "uninstall", "--dry-run"); out.code != 0 || !strings.Contains(out.stdout, "what has no namespace kept: it belongs to the installation default/mapd\n") {
		t.Errorf("mapd uninstall beside another installation: %s", out)
	}
	a.mustKubectl(t, "", "annotate", "mutatingwebhookconfiguration", "000.mapd.dev", "mapd.dev/installation-")
	out = a.mapd(t, "install", "--timeout", "20s")
	if out.code != 1 || out.stdout != "" || !strings.Contains(out.stderr, "clusterrole.rbac.authorization.k8s.io/mapd: ") ||
		!strings.Contains(out.stderr, "--force-conflicts takes them over") || !strings.Contains(out.stderr, "mapd: nothing was applied\n") {
		t.Errorf("mapd install over another release's parts: %s", out)
	}
}

// shippedKinds are the documents of the manifest that have one of these kinds.
func shippedKinds(t *testing.T, kinds ...string) string {
	t.Helper()
	var all []string
	for doc := range strings.SplitSeq(string(shipped.Install()), "---\n") {
		if slices.ContainsFunc(kinds, func(k string) bool { return strings.Contains(doc, "\nkind: "+k+"\n") }) {
			all = append(all, doc)
		}
	}
	if len(all) == 0 {
		t.Fatalf("install.yaml has none of %v", kinds)
	}
	return strings.Join(all, "---\n")
}

// rolledOut writes into the Deployment's status what its controller would.
func (a *admin) rolledOut(t *testing.T, replicas int) {
	t.Helper()
	deployments := a.Kubernetes.AppsV1().Deployments(cluster.Namespace)
	d, err := deployments.Get(t.Context(), cluster.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch := fmt.Sprintf(`{"status": {"observedGeneration": %d, "replicas": %d, "updatedReplicas": %[2]d, "readyReplicas": %[2]d, "availableReplicas": %[2]d}}`, d.Generation, replicas)
	if _, err := deployments.Patch(t.Context(), cluster.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// scaled is Scale and what a Deployment says then.
func (a *admin) scaled(t *testing.T, replicas int) {
	t.Helper()
	a.mustKubectl(t, "", "-n", cluster.Namespace, "scale", "deployment", cluster.Name, fmt.Sprintf("--replicas=%d", replicas))
	a.Scale(t, min(replicas, 1))
	a.rolledOut(t, replicas)
}

// endNamespace does what the namespace controller does with one that is deleted.
func (a *admin) endNamespace(t *testing.T) {
	t.Helper()
	for name, gvr := range allObjects(t, a.Cluster) {
		_, place, _ := strings.Cut(name, " ")
		if namespace, short, _ := strings.Cut(place, "/"); namespace == cluster.Namespace {
			if err := a.Dynamic.Resource(gvr).Namespace(namespace).Delete(t.Context(), short, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
		}
	}
	ns, err := a.Kubernetes.CoreV1().Namespaces().Get(t.Context(), cluster.Namespace, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ns.Spec.Finalizers = nil
	if _, err := a.Kubernetes.CoreV1().Namespaces().Finalize(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// doctor looks at a cluster in health, then in one sickness after the other.
func (a *admin) doctor(t *testing.T) {
	a.healthy(t)
	unbound := drawing{name: "e2e-unbound", resources: "secrets", namespaces: "e2e: none", mutations: []string{label("a", `"b"`)}}
	dangling := unbound
	dangling.name = "e2e-dangling"
	noParam := unbound
	noParam.name, noParam.paramKind, noParam.paramRef = "e2e-no-param", "{apiVersion: v1, kind: ConfigMap}", "{name: none, namespace: default, parameterNotFoundAction: Deny}"
	noKind := noParam
	noKind.name, noKind.paramKind = "e2e-no-kind", "{apiVersion: none.mapd.dev/v1, kind: None}"
	apply := func(text string) func() { return func() { a.mustKubectl(t, text, "apply", "-f", "-") } }
	drifts := drawing{name: "e2e-drift", resources: "configmaps", mutations: []string{label("drift", `"yes"`)}}
	remove := func(names ...string) func() { return func() { a.erase(t, names...) } }
	authority, _ := newAuthority(t)
	patch := func(kind, name, how, text string) {
		t.Helper()
		a.mustKubectl(t, "", "patch", kind, name, "--type", how, "-p", text)
	}
	misTrust := func() {
		bundle := base64.StdEncoding.EncodeToString(authority)
		patch("validatingwebhookconfiguration", "mapd.dev", "json", fmt.Sprintf(`[
			{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": %q}, {"op": "replace", "path": "/webhooks/1/clientConfig/caBundle", "value": %[1]q}]`, bundle))
	}
	role, err := a.Kubernetes.RbacV1().ClusterRoles().Get(t.Context(), "mapd", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		sickness string
		do, undo func()
		code     int
		want     []string // in the output
	}{
		{"a policy without a binding", apply(unbound.policyYAML()), remove(unbound.name), 0,
			[]string{"‼ policies: without a binding, so without effect: e2e-unbound\n"}},
		{"a binding without a policy", apply(dangling.bindingYAML()), remove(dangling.name), 0,
			[]string{"‼ policies: bindings whose policy does not exist: e2e-dangling (policy e2e-dangling)\n"}},
		{"a param that is not there", apply(noParam.yaml()), remove(noParam.name), 1,
			[]string{"× params: binding e2e-no-param: there is no configmaps default/none, and it refuses what its policy would be applied to\n"}},
		{"a paramKind that is not there", apply(noKind.yaml()), remove(noKind.name), 1,
			[]string{"× policy e2e-no-kind: not ready: the API server does not serve none.mapd.dev/v1, kind None\n"}},
		{"an object that Flux applies and a policy would change", func() {
			a.mustKubectl(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: from-git, namespace: default, labels: {
				kustomize.toolkit.fluxcd.io/name: apps, kustomize.toolkit.fluxcd.io/namespace: flux-system}}}`, "apply", "-f", "-")
			a.mustKubectl(t, drifts.yaml(), "apply", "-f", "-")
		}, func() {
			a.erase(t, drifts.name)
			a.mustKubectl(t, "", "-n", "default", "delete", "configmap", "from-git")
		}, 0, []string{"‼ objects from Git: 1 object that would change would differ from Git: Flux Kustomization flux-system/apps (1) (a sample of "}},
		{"rights that somebody took away", func() {
			patch("clusterrole", "mapd", "json", `[{"op": "remove", "path": "/rules/0/verbs/0"}]`)
			patch("flowschema", "mapd", "merge", `{"spec": {"matchingPrecedence": 9000}}`)
			patch("crd", "mutatingadmissionpolicybindings.admissionregistration.mapd.dev", "json", `[{"op": "remove", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/policyName"}]`)
			a.mustKubectl(t, "", "delete", "prioritylevelconfiguration", "mapd")
		}, func() {
			a.mustKubectl(t, shippedKinds(t, "CustomResourceDefinition", "ClusterRole", "FlowSchema", "PriorityLevelConfiguration"), "apply", "-f", "-")
			a.AggregateRoles(t)
		}, 0,
			[]string{"‼ installed objects: clusterrole.rbac.authorization.k8s.io/mapd is not what this release installs: rules[0].verbs\n",
				"‼ installed objects: flowschema.flowcontrol.apiserver.k8s.io/mapd is not what this release installs: spec.matchingPrecedence\n",
				"mutatingadmissionpolicybindings.admissionregistration.mapd.dev is not what this release installs: spec.versions[0].schema.openAPIV3Schema.properties.spec.",
				"‼ installed objects: prioritylevelconfiguration.flowcontrol.apiserver.k8s.io/mapd is not there\n"}},
		{"a webhook before mapd's", apply(neighbour), func() { a.mustKubectl(t, "", "delete", "mutatingwebhookconfiguration", "000.first") }, 0,
			[]string{"‼ webhooks before mapd's: 000.first: "}},
		{"no Service", func() { a.mustKubectl(t, "", "-n", cluster.Namespace, "delete", "service", "mapd") },
			func() {
				a.mustKubectl(t, string(shipped.Install()), "apply", "-f", "-")
				a.Expose(t)
				a.AggregateRoles(t)
				a.rolledOut(t, 2)
			}, 1,
			[]string{`× API server to mapd: `, `service "mapd" not found`}},
		{"nobody there, a configuration deleted and another trusting a stranger", func() {
			a.scaled(t, 0)
			a.mustKubectl(t, "", "delete", "mutatingwebhookconfiguration", "000.mapd.dev")
			misTrust()
		}, func() { a.scaled(t, 2) }, 1,
			[]string{"× Deployment: scaled to zero\n", "× mutating webhook: 000.mapd.dev is not there, so no policy has an effect\n", "× API server to mapd: ",
				"× certificate: caBundle of params.validate.mapd.dev does not vouch for it: "}},
		{"a caBundle that mapd may not repair", func() {
			patch("clusterrole", "mapd", "merge", `{"rules": []}`)
			cluster.Eventually(t, cluster.Patience, "mapd to lose its rights", func(ctx context.Context) error {
				_, err := a.Client(t, a.As("system:serviceaccount:mapd-system:mapd")).AdmissionregistrationV1().MutatingWebhookConfigurations().List(ctx, metav1.ListOptions{})
				if !apierrors.IsForbidden(err) {
					return fmt.Errorf("got %v", err)
				}
				return nil
			})
			misTrust()
		}, func() {
			role.ResourceVersion = ""
			if _, err := a.Kubernetes.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}, 1, []string{"× API server to mapd: ", "x509: ", "× certificate: caBundle of params.validate.mapd.dev does not vouch for it: "}},
	} {
		start := time.Now()
		tt.do()
		cluster.Eventually(t, cluster.Patience, "doctor to find "+tt.sickness, func(context.Context) error {
			out := a.mapd(t, "doctor")
			for _, want := range tt.want {
				if !strings.Contains(out.stdout, want) {
					return fmt.Errorf("no %q in %s", want, out)
				}
			}
			if out.code != tt.code {
				return errors.New(out.String())
			}
			return nil
		})
		found := time.Since(start)
		tt.undo()
		a.healthy(t)
		t.Logf("%s: found after %s, healed after %s", tt.sickness, found.Round(time.Millisecond), (time.Since(start) - found).Round(time.Millisecond))
	}
}

// ails reports whether a line of doctor's is about something that is not well. That
// anybody may send reviews is meant so here, and where no Service has endpoints that
// cannot be asked.
func ails(line string) bool {
	advice := strings.HasPrefix(line, "  → ")
	known := strings.HasPrefix(line, "‼ senders of reviews: ") || strings.HasPrefix(line, "‼ memory of reviews: not known: the API server's proxy")
	return !strings.HasPrefix(line, "√ ") && !known && !(advice && strings.Contains(line, "--client-ca"))
}

// healthy waits until doctor has nothing to say against the cluster.
func (a *admin) healthy(t *testing.T) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, "health", func(context.Context) error {
		out := a.mapd(t, "doctor")
		lines := strings.Split(strings.TrimSpace(out.stdout), "\n")
		if out.code != 0 || slices.ContainsFunc(lines, ails) {
			return errors.New(out.String())
		}
		for _, want := range []string{
			"√ API server: v1.", "√ native policies: MutatingAdmissionPolicy is served in v1, but the server does not run it: its admission plugin is off",
			"√ CustomResourceDefinitions: ", "√ Deployment: 2 of 2 replicas ready", "√ mutating webhook: 000.mapd.dev has 1 entry (fail.never.mapd.dev), as 1 bound policy needs",
			"√ validating webhook: ", "√ API server to mapd: a broken policy was refused by mapd (dry run)", "√ certificate: ", "caBundle vouches for it",
			"√ installed objects: ", "√ webhooks before mapd's: none", "√ policies: 1 policy and 1 binding, all ready", "√ params: those of 1 binding exist",
			"√ objects from Git: none that Argo CD or Flux applies would differ from it (a sample of ",
		} {
			if !strings.Contains(out.stdout, want) {
				return fmt.Errorf("no %q in %s", want, out)
			}
		}
		return nil
	})
}

// neighbour is somebody else's webhook, which is called first and for nothing.
const neighbour = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: 000.first}
webhooks:
- name: first.e2e.mapd.dev
  clientConfig: {url: "https://127.0.0.1:1/"}
  rules: [{apiGroups: [none.mapd.dev], apiVersions: [v1], operations: [CREATE], resources: [none]}]
  sideEffects: None
  admissionReviewVersions: [v1]
`

// newAuthority makes an authority for certificates.
func newAuthority(t testing.TB) (certificate []byte, sign func(name string) (certificate, key []byte)) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	parent := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "e2e authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, parent, parent, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), func(name string) ([]byte, []byte) {
		t.Helper()
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: parent.NotBefore, NotAfter: parent.NotAfter,
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, parent, own.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := x509.MarshalPKCS8PrivateKey(own)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	}
}
