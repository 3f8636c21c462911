//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// helm is the program, built if nobody has and MAPD_E2E_HELM names none.
var helm = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("MAPD_E2E_HELM"); path != "" {
		return path, nil
	}
	cmd := exec.Command("helm/build.sh")
	cmd.Stderr = os.Stderr // tells what takes so long
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("helm/build.sh: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
})

// Helm runs helm, which finds nothing of whoever runs the tests. config is a
// kubeconfig, or empty.
func Helm(t *testing.T, config string, args ...string) []byte {
	t.Helper()
	path, err := helm()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	return output(t, exec.Command(path, args...), "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG="+config)
}

func output(t *testing.T, cmd *exec.Cmd, env ...string) []byte {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, stderr.String(), stdout.String())
	}
	return stdout.Bytes()
}

func manifests(t *testing.T, elem ...string) string {
	t.Helper()
	return filepath.Join(append([]string{cluster.Root(t), "manifests"}, elem...)...)
}

// TestManifestsAgree renders what is installed in every way there is: kubectl,
// kustomize and Helm install the same objects.
func TestManifestsAgree(t *testing.T) {
	cluster.NotGiven(t, "it asks no cluster")
	kustomize := func(elem ...string) map[string]any {
		return rendered(t, output(t, exec.Command(cluster.Program(t, "kubectl"), "kustomize", manifests(t, elem...))))
	}
	chart := func(args ...string) map[string]any {
		return rendered(t, Helm(t, "", append([]string{"template", "mapd", manifests(t, "chart"), "--namespace=mapd-system"}, args...)...))
	}
	const namespace = "--set=namespace.create=true"

	base := kustomize("base")
	install, err := os.ReadFile(manifests(t, "install.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	withoutNamespace := kustomize("base")
	delete(withoutNamespace, "Namespace mapd-system")
	if len(withoutNamespace) != len(base)-1 {
		t.Error("base has no Namespace")
	}
	// On the way back from policies for mutators mapd keeps the right to delete them.
	back, native := kustomize("overlays", "legacy"), kustomize("overlays", "native")
	for _, name := range []string{"ClusterRole mapd-native", "ClusterRoleBinding mapd-native"} {
		if native[name] == nil || back[name] != nil {
			t.Errorf("%s is in the overlay native: %v, and in legacy: %v", name, native[name] != nil, back[name] != nil)
		}
		back[name] = native[name]
	}
	for _, tc := range []struct {
		name      string
		want, got map[string]any
	}{
		{"install.yaml is base", base, rendered(t, install)},
		{"the chart as it is, with a namespace that Helm makes", withoutNamespace, chart()},
		{"the chart with the namespace", base, chart(namespace)},
		{"the chart with values-ha.yaml", kustomize("overlays", "ha"), chart(namespace, "--values="+manifests(t, "chart", "values-ha.yaml"))},
		{"the chart with cert-manager", kustomize("overlays", "cert-manager"), chart(namespace, "--set=certManager.enabled=true")},
		{"the chart with Gatekeeper's mutators", kustomize("overlays", "legacy"), chart(namespace, "--set=legacy=on")},
		{"the chart with Kubewarden's policies", kustomize("overlays", "kubewarden"), chart(namespace, "--set=kubewarden=on")},
		{"the chart with policies for mutators", native, chart(namespace, "--set=legacy=native")},
		{"the chart on the way back from them", back, chart(namespace, "--set=legacy=on,legacyBack=true")},
		{"the chart on the way back, without mutators", base, chart(namespace, "--set=legacyBack=true")},
		{"the chart with expansion", kustomize("overlays", "expansion"), chart(namespace, "--set=expansion=true")},
		{"the chart with audits", kustomize("overlays", "audit"), chart(namespace, "--set=auditInterval=6h")},
		{"the chart with reports", kustomize("overlays", "reports"), chart(namespace, "--set=auditInterval=6h,reports=openreports")},
		{"the chart with objects that exist", kustomize("overlays", "existing"), chart(namespace, "--set=auditInterval=6h,existing.enabled=true")},
		{"the chart with external data", kustomize("overlays", "external-data"), chart(namespace, "--set=legacy=on,externalData=true")},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s (- kustomize):\n%s", tc.name, diff)
		}
	}
}

// rendered returns objects by kind, namespace and name.
func rendered(t *testing.T, text []byte) map[string]any {
	t.Helper()
	all := map[string]any{}
	for doc, err := range manifest.ReadStream("rendered", bytes.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		if doc.Object == nil {
			continue
		}
		name := strings.Join(slices.DeleteFunc([]string{doc.Object.GetKind(), doc.Object.GetNamespace(), doc.Object.GetName()}, func(s string) bool { return s == "" }), " ")
		if all[name] != nil {
			t.Errorf("%s is there twice", name)
		}
		all[name] = doc.Object.Object
	}
	return all
}

// The webhook configuration as mapd might fill it in, for requests that nobody
// makes.
const filledIn = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
webhooks:
- name: fail.never.mapd.dev
  clientConfig: {service: {namespace: mapd-system, name: mapd}}
  sideEffects: None
  admissionReviewVersions: [v1]
  rules:
  - {apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [nothings]}
`

var asMapd = []string{"--as=system:serviceaccount:mapd-system:mapd", "--as-group=system:serviceaccounts", "--as-group=system:authenticated"}

// fillIn does what mapd does with a webhook configuration, with mapd's rights.
// (kubectl would not do: it notes in the object what it has applied.)
func fillIn(t *testing.T, c *cluster.Cluster, name string) error {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict([]byte(filledIn), &obj.Object); err != nil {
		t.Fatal(err)
	}
	obj.SetName(name)
	mapd := c.DynamicClient(t, c.As("system:serviceaccount:mapd-system:mapd", "system:serviceaccounts", "system:authenticated"))
	_, err := mapd.Resource(admissionregistrationv1.SchemeGroupVersion.WithResource("mutatingwebhookconfigurations")).
		Apply(t.Context(), name, obj, metav1.ApplyOptions{FieldManager: "mapd", Force: true})
	return err
}

func mustFillIn(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if err := fillIn(t, c, webhookconfig.ConfigurationName); err != nil {
		t.Fatal(err)
	}
}

func webhooks(t *testing.T, c *cluster.Cluster) int {
	t.Helper()
	out, err := c.Kubectl(t, nil, "get", "mutatingwebhookconfiguration", "000.mapd.dev", "--output=jsonpath={.webhooks[*].name}")
	if err != nil {
		t.Fatal(err)
	}
	return len(strings.Fields(out))
}

// wantLeft waits until, of all that is mapd's outside of its namespace, only n
// objects with the prefix are there. Definitions take a moment to go.
func wantLeft(t *testing.T, c *cluster.Cluster, n int, prefix string) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, "what is left behind", func(context.Context) error {
		out, err := c.Kubectl(t, nil, "get", "--selector=app.kubernetes.io/part-of=mapd", "--output=name",
			"customresourcedefinitions,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,validatingwebhookconfigurations")
		if err != nil {
			return err
		}
		names := strings.Fields(out)
		if len(names) != n || slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) }) {
			return fmt.Errorf("left behind: %v", names)
		}
		return nil
	})
}

// TestManifestsOnAServer applies install.yaml in the ways that kubectl has, again
// and again, and takes it away.
func TestManifestsOnAServer(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := c.Kubectl(t, nil, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	file := "--filename=" + manifests(t, "install.yaml")
	if out := kubectl("apply", file); strings.Contains(out, "Warning") {
		t.Errorf("kubectl apply:\n%s", out)
	}
	c.WaitKinds(t)

	t.Run("applied again", func(t *testing.T) {
		mustFillIn(t, c)
		for _, line := range strings.Split(strings.TrimSpace(kubectl("apply", file)), "\n") {
			// kubectl sends the selector of a budget always, because it cannot merge one.
			if !strings.HasSuffix(line, " unchanged") && !strings.HasPrefix(line, "poddisruptionbudget") {
				t.Error(line)
			}
		}
		kubectl("apply", "--server-side", file)
		kubectl("apply", "--server-side", "--force-conflicts", file)
		kubectl("apply", "--kustomize="+manifests(t, "base"))
		kubectl("apply", "--kustomize="+manifests(t, "overlays", "ha"))
		if n := webhooks(t, c); n != 1 {
			t.Errorf("what mapd had filled in is gone: %d webhooks", n)
		}
	})

	t.Run("rights", func(t *testing.T) {
		kubectl("delete", "mutatingwebhookconfiguration", "000.mapd.dev")
		mustFillIn(t, c) // it may make its own anew
		if err := fillIn(t, c, "other"); !apierrors.IsForbidden(err) {
			t.Errorf("mapd writes another webhook configuration: %v", err)
		}
		for _, question := range [][]string{
			{"get", "secrets", "--all-namespaces"},
			{"get", "secrets", "--namespace=mapd-system"},
			{"get", "secrets/mapd-tls", "--namespace=default"},
			{"update", "mutatingadmissionpolicies.admissionregistration.mapd.dev"},
			{"create", "pods", "--namespace=mapd-system"},
			{"impersonate", "users"},
			{"escalate", "clusterroles"},
		} {
			if _, err := c.Kubectl(t, nil, append(append([]string{"auth", "can-i"}, question...), asMapd...)...); err == nil {
				t.Errorf("mapd may %s", strings.Join(question, " "))
			}
		}
		for _, question := range [][]string{
			{"get", "secrets/mapd-tls", "--namespace=mapd-system"},
			{"update", "leases/mapd", "--namespace=mapd-system"},
			{"patch", "mutatingadmissionpolicies.admissionregistration.mapd.dev", "--subresource=status"},
			{"create", "subjectaccessreviews.authorization.k8s.io"},
			{"create", "events.events.k8s.io", "--namespace=default"},
		} {
			if _, err := c.Kubectl(t, nil, append(append([]string{"auth", "can-i"}, question...), asMapd...)...); err != nil {
				t.Errorf("mapd may not %s: %v", strings.Join(question, " "), err)
			}
		}
	})

	t.Run("pod security", func(t *testing.T) {
		var pod unstructured.Unstructured
		if err := pod.UnmarshalJSON([]byte(kubectl("get", "deployment", "mapd", "--namespace=mapd-system", "--output=json"))); err != nil {
			t.Fatal(err)
		}
		template, _, _ := unstructured.NestedMap(pod.Object, "spec", "template")
		pod.Object = template
		pod.SetAPIVersion("v1")
		pod.SetKind("Pod")
		pod.SetName("mapd")
		text, err := pod.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		// The namespace enforces the level restricted.
		if _, err := c.Kubectl(t, text, "create", "--dry-run=server", "--namespace=mapd-system", "--filename=-"); err != nil {
			t.Error(err)
		}
		if _, err := c.Kubectl(t, nil, "run", "x", "--image=x", "--dry-run=server", "--namespace=mapd-system"); err == nil {
			t.Error("any Pod may be in the namespace")
		}
	})

	t.Run("columns", func(t *testing.T) {
		c.Apply(t, `
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicy
metadata: {name: columns}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  reinvocationPolicy: IfNeeded
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{}"}}]
---
apiVersion: admissionregistration.mapd.dev/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: columns}
spec:
  policyName: columns
  paramRef: {name: settings, parameterNotFoundAction: Deny}
`)
		for _, kind := range []string{"map", "mapb"} {
			kubectl("patch", kind, "columns", "--subresource=status", "--type=merge", `--patch={"status": {"observedGeneration": 1, "conditions": [
				{"type": "Ready", "status": "False", "reason": "Missing", "message": "none-such", "lastTransitionTime": "2026-01-01T00:00:00Z"},
				{"type": "Compiled", "status": "True", "reason": "Compiled", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`)
		}
		for _, tc := range []struct{ args, header, row []string }{
			{[]string{"map"}, []string{"NAME", "FAILUREPOLICY", "REINVOCATION", "PARAM", "READY", "TRIPPED", "AGE"}, []string{"columns", "Fail", "IfNeeded", "ConfigMap", "False"}},
			{
				[]string{"map", "--output=wide"},
				[]string{"NAME", "FAILUREPOLICY", "REINVOCATION", "PARAM", "READY", "TRIPPED", "COMPILED", "MESSAGE", "AGE"},
				[]string{"columns", "Fail", "IfNeeded", "ConfigMap", "False", "True", "none-such"},
			},
			{[]string{"mapb"}, []string{"NAME", "POLICY", "PARAM", "READY", "MODE", "CHANGED", "WOULD", "FAILED", "AGE"}, []string{"columns", "columns", "settings", "False"}},
			{[]string{"mapb", "--output=wide"}, []string{"NAME", "POLICY", "PARAM", "READY", "MODE", "CHANGED", "WOULD", "FAILED", "EXISTING", "MESSAGE", "AGE"}, []string{"columns", "columns", "settings", "False", "none-such"}},
		} {
			header, row, _ := strings.Cut(kubectl(append([]string{"get"}, tc.args...)...), "\n")
			if diff := cmp.Diff(tc.header, strings.Fields(header)); diff != "" {
				t.Errorf("kubectl get %v: header (- want):\n%s", tc.args, diff)
			}
			got := strings.Fields(row)
			if len(got) > 0 {
				got = got[:len(got)-1] // the age
			}
			if diff := cmp.Diff(tc.row, got); diff != "" {
				t.Errorf("kubectl get %v: row (- want):\n%s", tc.args, diff)
			}
		}
		if out := kubectl("get", "api-extensions"); !strings.Contains(out, "mutatingadmissionpolicy.admissionregistration.mapd.dev/columns") {
			t.Errorf("the category api-extensions has no policy:\n%s", out)
		}
	})

	t.Run("deleted", func(t *testing.T) {
		// A namespace goes when the controller-manager, which is not here, has
		// cleared it; so do not wait.
		kubectl("delete", "--wait=false", file)
		wantLeft(t, c, 0, "")
		if out := kubectl("get", "namespace", "mapd-system", "--output=jsonpath={.status.phase}"); out != "Terminating" {
			t.Errorf("the namespace is %s", out)
		}
	})
}

// TestChartOnAServer installs, upgrades and uninstalls the chart as its README says.
func TestChartOnAServer(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	config := c.Kubeconfig(t, c.Config, "")
	helm := func(verb string, args ...string) {
		t.Helper()
		Helm(t, config, append([]string{verb, "mapd", "--namespace=mapd-system"}, args...)...)
	}
	helm("install", manifests(t, "chart"), "--create-namespace")
	mustFillIn(t, c)
	helm("upgrade", manifests(t, "chart"), "--set=replicas=3")
	if n := webhooks(t, c); n != 1 {
		t.Errorf("what mapd had filled in is gone: %d webhooks", n)
	}
	if out, err := c.Kubectl(t, nil, "get", "deployment", "mapd", "--namespace=mapd-system", "--output=jsonpath={.spec.replicas}"); err != nil || out != "3" {
		t.Errorf("replicas: %s, %v", out, err)
	}
	// With values that add objects and arguments, and without them again.
	overlays := []string{"--values=" + manifests(t, "chart", "values-ha.yaml"), "--set=legacy=native,externalData=true,expansion=true,kubewarden=on,auditInterval=6h,reports=policyreport"}
	all := rendered(t, Helm(t, "", append([]string{"template", "mapd", manifests(t, "chart"), "--namespace=mapd-system"}, overlays...)...))
	helm("upgrade", append([]string{manifests(t, "chart")}, overlays...)...)
	installed(t, c, all, nil)
	helm("upgrade", manifests(t, "chart"), "--reuse-values", "--set=expansion=false")
	if args, err := c.Kubectl(t, nil, "get", "deployment", "mapd", "--namespace=mapd-system", "--output=jsonpath={.spec.template.spec.containers[0].args}"); err != nil ||
		!strings.Contains(args, "--legacy=native") || strings.Contains(args, "--expansion") {
		t.Errorf("arguments after an upgrade that keeps the other values: %s, %v", args, err)
	}
	helm("upgrade", manifests(t, "chart"), "--reset-values")
	installed(t, c, rendered(t, Helm(t, "", "template", "mapd", manifests(t, "chart"), "--namespace=mapd-system")), all)
	if n := webhooks(t, c); n != 1 {
		t.Errorf("what mapd had filled in is gone after upgrades with values: %d webhooks", n)
	}
	helm("upgrade", manifests(t, "chart"), "--set=crds.keep=true")
	helm("uninstall")
	wantLeft(t, c, 3, "customresourcedefinition.")
	// The kept definitions belong to the release still.
	helm("install", manifests(t, "chart"))
	helm("uninstall")
	wantLeft(t, c, 0, "")
}

// installed holds what the cluster has to what the chart makes: all of want is there, each with
// the spec, rules, subjects and data of the chart, and of before only what is in want.
func installed(t *testing.T, c *cluster.Cluster, want, before map[string]any) {
	t.Helper()
	for name, object := range before {
		if want[name] == nil {
			if _, err := live(t, c, object); !apierrors.IsNotFound(err) {
				t.Errorf("%s is still there: %v", name, err)
			}
		}
	}
	for name, object := range want {
		got, err := live(t, c, object)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for field, value := range object.(map[string]any) {
			switch field {
			case "spec", "data":
				if path, ok := filled(value, got.Object[field]); !ok {
					t.Errorf("%s: %s%s is not as in the chart", name, field, path)
				}
			case "rules", "roleRef", "subjects":
				if diff := cmp.Diff(value, got.Object[field]); diff != "" {
					t.Errorf("%s: %s (- chart):\n%s", name, field, diff)
				}
			}
		}
		if containers, _, _ := unstructured.NestedSlice(object.(map[string]any), "spec", "template", "spec", "containers"); len(containers) > 0 {
			has, _, _ := unstructured.NestedSlice(got.Object, "spec", "template", "spec", "containers")
			want, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
			args, _, _ := unstructured.NestedStringSlice(has[0].(map[string]any), "args")
			if diff := cmp.Diff(want, args); diff != "" {
				t.Errorf("%s: arguments (- chart):\n%s", name, diff)
			}
		}
	}
}

// filled reports whether got is want, perhaps with more fields in it, such as defaults. If not,
// path is where they differ.
func filled(want, got any) (path string, ok bool) {
	switch want := want.(type) {
	case map[string]any:
		m, ok := got.(map[string]any)
		if !ok {
			return "", len(want) == 0 && got == nil
		}
		for _, k := range slices.Sorted(maps.Keys(want)) {
			if path, ok := filled(want[k], m[k]); !ok {
				return "." + k + path, false
			}
		}
		return "", true
	case []any:
		l, ok := got.([]any)
		if !ok || len(l) != len(want) {
			return "", len(want) == 0 && got == nil
		}
		for i := range want {
			if path, ok := filled(want[i], l[i]); !ok {
				return fmt.Sprintf("[%d]%s", i, path), false
			}
		}
		return "", true
	case bool:
		return "", want == (got == true) // a server leaves out some that are false
	}
	return "", fmt.Sprint(want) == fmt.Sprint(got)
}

// live is what the cluster has of an object.
func live(t *testing.T, c *cluster.Cluster, object any) (*unstructured.Unstructured, error) {
	t.Helper()
	u := &unstructured.Unstructured{Object: object.(map[string]any)}
	gvr, _ := apimeta.UnsafeGuessKindToResource(u.GroupVersionKind())
	if u.GetNamespace() == "" {
		return c.Dynamic.Resource(gvr).Get(t.Context(), u.GetName(), metav1.GetOptions{})
	}
	return c.Dynamic.Resource(gvr).Namespace(u.GetNamespace()).Get(t.Context(), u.GetName(), metav1.GetOptions{})
}
