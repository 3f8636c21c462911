//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/gatekeeper"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// things are objects that may hold anything.
const things = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Thing, plural: things}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// ownerLabel is a mutator that gives everything a label.
func ownerLabel(value string) string {
	return fmt.Sprintf(`
apiVersion: mutations.gatekeeper.sh/v1
kind: AssignMetadata
metadata: {name: owner}
spec:
  location: metadata.labels.owner
  parameters: {assign: {value: %q}}
`, value)
}

// assign is a mutator of Things.
func assign(name, location, value string) string {
	return fmt.Sprintf(`
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: %s}
spec:
  applyTo: [{groups: [example.com], versions: [v1], kinds: [Thing]}]
  location: %s
  parameters: {assign: {value: %s}}
`, name, location, value)
}

// TestGatekeeper runs Gatekeeper's mutators from the day on which there is no
// Gatekeeper to the day on which it is gone again.
func TestGatekeeper(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{})
	overlay := output(t, exec.Command(cluster.Program(t, "kubectl"), "kustomize", manifests(t, "overlays", "legacy")))
	g := &gatekeeperInstall{cluster.Install(t, c, cluster.InstallOptions{Manifest: overlay, Replicas: -1})}
	g.Apply(t, things)
	shadow := g.AddReplica(t, "--legacy=shadow")
	g.WaitReady(t)

	t.Run("before Gatekeeper", g.before)
	g.define(t)
	t.Run("shadow", g.shadow)
	g.AddReplica(t, "--legacy=on")
	g.WaitReady(t)
	g.Remove(t, shadow)
	t.Run("on", g.on)
	t.Run("recorded", g.recorded)
	t.Run("Pods", g.pods)
	t.Run("conflict", g.conflict)
	t.Run("invalid", g.invalid)
	t.Run("left alone", g.leftAlone)
	t.Run("definitions go and come back", g.definitions)
	t.Run("doctor", g.doctor)
	t.Run("without rights", g.withoutRights)
	t.Run("uninstalled", g.uninstalled)
}

type gatekeeperInstall struct{ *cluster.Mapd }

func gatekeeperKinds(t *testing.T) string {
	t.Helper()
	return "--filename=" + filepath.Join(cluster.Root(t), "test/e2e/testdata/gatekeeper-crds.yaml")
}

// define makes Gatekeeper's kinds.
func (g *gatekeeperInstall) define(t *testing.T) {
	t.Helper()
	defineGatekeeper(t, g.Cluster)
}

func defineGatekeeper(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if _, err := c.Kubectl(t, nil, "apply", gatekeeperKinds(t)); err != nil {
		t.Fatal(err)
	}
	c.WaitKinds(t)
}

func (g *gatekeeperInstall) delete(t *testing.T, resources ...string) {
	t.Helper()
	if _, err := g.Kubectl(t, nil, append([]string{"delete", "--ignore-not-found"}, resources...)...); err != nil {
		t.Fatal(err)
	}
}

// said is what mapd says of the mutators.
func (g *gatekeeperInstall) said(ctx context.Context) (feature.Listing, error) {
	c, err := g.Kubernetes.CoreV1().ConfigMaps(cluster.Namespace).Get(ctx, gatekeeper.MutatorsName, metav1.GetOptions{})
	if err != nil {
		return feature.Listing{}, err
	}
	return gatekeeper.ReadMutators(c.Data), nil
}

// says waits until mapd says it, each as "Assign/name state".
func (g *gatekeeperInstall) says(t *testing.T, want ...string) feature.Listing {
	t.Helper()
	var list feature.Listing
	cluster.Eventually(t, cluster.Patience, "what is said of mutators", func(ctx context.Context) (err error) {
		if list, err = g.said(ctx); err != nil {
			return err
		}
		var got []string
		for _, m := range list.Lines {
			got = append(got, m.ID+" "+m.State)
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("%q (%v), want %q", got, list, want)
		}
		return nil
	})
	return list
}

// entry waits until servers call mapd for these resources, none for no entry.
func (g *gatekeeperInstall) entry(t *testing.T, want ...string) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, fmt.Sprintf("the entry to be for %q", want), func(ctx context.Context) error {
		c, err := g.Kubernetes.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, webhookconfig.ConfigurationName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, w := range c.Webhooks {
			if w.Name != gatekeeper.EntryName {
				return fmt.Errorf("there is an entry %s", w.Name)
			}
			for _, r := range w.Rules {
				got = append(got, r.Resources...)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("it is for %q", got)
		}
		return nil
	})
}

// try creates an object for show.
func (g *gatekeeperInstall) try(ctx context.Context, obj *unstructured.Unstructured, namespace string) (*unstructured.Unstructured, error) {
	return createdFrom(ctx, g.Cluster, obj, namespace)
}

// createdFrom is what a dry run makes of an object, without what is the server's own.
func createdFrom(ctx context.Context, c *cluster.Cluster, obj *unstructured.Unstructured, namespace string) (*unstructured.Unstructured, error) {
	resource, _ := apimeta.UnsafeGuessKindToResource(obj.GroupVersionKind())
	got, err := c.Dynamic.Resource(resource).Namespace(namespace).Create(ctx, obj, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil, err
	}
	if got.Object["metadata"], err = chosen(got.Object["metadata"]); err != nil {
		return nil, err
	}
	delete(got.Object, "status")
	return got, nil
}

// chosen is what of an object's metadata is not the server's.
func chosen(metadata any) (map[string]any, error) {
	all, ok := metadata.(map[string]any)
	if !ok {
		return nil, errors.New("no metadata")
	}
	out := map[string]any{}
	for _, field := range []string{"name", "labels", "annotations"} {
		if v, ok := all[field]; ok {
			out[field] = v
		}
	}
	return out, nil
}

// ownerOf is the label that the mutator owner gives to a ConfigMap.
func (g *gatekeeperInstall) ownerOf(ctx context.Context, namespace string) (string, error) {
	got, err := g.Kubernetes.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return "", err
	}
	return got.Labels["owner"], nil
}

func (g *gatekeeperInstall) awaitOwner(t *testing.T, namespace, want string) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, fmt.Sprintf("owner %q in %s", want, namespace), func(ctx context.Context) error {
		got, err := g.ownerOf(ctx, namespace)
		if err == nil && got != want {
			err = fmt.Errorf("owner %q", got)
		}
		return err
	})
}

func (g *gatekeeperInstall) before(t *testing.T) {
	if list := g.says(t); list.Mode != "shadow" {
		t.Errorf("mode %q", list.Mode)
	}
	g.entry(t)
}

// Everything is asked and nothing comes of it.
func (g *gatekeeperInstall) shadow(t *testing.T) {
	g.Apply(t, ownerLabel("shop"))
	g.says(t, "AssignMetadata/owner running")
	cluster.Eventually(t, cluster.Patience, "a line in the log", func(ctx context.Context) error {
		if got, err := g.ownerOf(ctx, "default"); err != nil || got != "" {
			t.Fatalf("in shadow the owner is %q, %v", got, err)
		}
		for line := range strings.Lines(g.Logs(t)) {
			if strings.Contains(line, "mutators would change the object") && strings.Contains(line, "AssignMetadata/owner: /metadata/labels") &&
				strings.Contains(line, "Resource=configmaps") {
				return nil
			}
		}
		return errors.New("there is none")
	})
	g.metric(t, `mapd_shadow_decisions_total{binding="",outcome="changed",policy="AssignMetadata/owner"} `)
	g.metric(t, `mapd_legacy_mutators{state="running"} 1`)
	g.metric(t, `mapd_http_requests_total{code="200",path="/mutate/legacy"} `)
}

// metric waits for a line of a replica's metrics.
func (g *gatekeeperInstall) metric(t *testing.T, line string) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, line, func(ctx context.Context) error {
		_, text, err := g.Replicas()[0].Get(ctx, "/metrics")
		if err == nil && !strings.Contains(text, "\n"+line) {
			err = errors.New("it is not there")
		}
		return err
	})
}

func (g *gatekeeperInstall) on(t *testing.T) {
	g.awaitOwner(t, "default", "shop")
	cluster.Eventually(t, cluster.Patience, "the mode on", func(ctx context.Context) error {
		list, err := g.said(ctx)
		if err == nil && list.Mode != "on" {
			err = fmt.Errorf("mode %q", list.Mode)
		}
		return err
	})
	// AssignMetadata never overwrites, so another value is seen on new objects only.
	g.Apply(t, ownerLabel("bakery"))
	g.awaitOwner(t, "default", "bakery")
	g.delete(t, "assignmetadata/owner")
	g.awaitOwner(t, "default", "")
	g.entry(t)
}

// A recorded case: what Gatekeeper makes of an object.
type recordedCase struct {
	Name     string           `json:"name"`
	Mutators []map[string]any `json:"mutators"`
	Object   map[string]any   `json:"object"`
	Want     map[string]any   `json:"want"`
	Error    string           `json:"error"`
}

var requestUID = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)

func (g *gatekeeperInstall) recorded(t *testing.T) {
	data, err := os.ReadFile("testdata/gatekeeper-cases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, doc := range strings.Split(string(data), "\n---\n")[1:] {
		text, err := yaml.YAMLToJSONStrict([]byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		var tc recordedCase
		if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &tc); err != nil {
			t.Fatal(err)
		}
		n++
		t.Run(tc.Name, func(t *testing.T) { g.record(t, tc) })
	}
	if t.Logf("%d cases", n); n == 0 {
		t.Error("there is no case")
	}
}

func (g *gatekeeperInstall) record(t *testing.T, tc recordedCase) {
	var all []string
	for _, m := range tc.Mutators {
		text, err := yaml.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	mutators := strings.Join(all, "---\n")
	g.Apply(t, mutators)
	defer func() {
		if _, err := g.Kubectl(t, []byte(mutators), "delete", "--filename=-"); err != nil {
			t.Error(err)
		}
	}()
	cluster.Eventually(t, cluster.Patience, "the recorded result", func(ctx context.Context) error {
		got, err := g.try(ctx, &unstructured.Unstructured{Object: tc.Object}, "default")
		if tc.Error != "" {
			if want := "denied the request: " + tc.Error; err == nil || !strings.HasSuffix(requestUID.ReplaceAllString(err.Error(), "UUID"), want) {
				return fmt.Errorf("got %v\nwant %s", err, want)
			}
			return nil
		}
		if err != nil {
			return err
		}
		if diff := cmp.Diff(tc.Want, got.Object); diff != "" {
			return fmt.Errorf("(- Gatekeeper):\n%s", diff)
		}
		return nil
	})
}

// Kinds of the server's own: what it makes of a mutated object is what it makes of
// one that was written so.
func (g *gatekeeperInstall) pods(t *testing.T) {
	const pod = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - {name: main, image: nginx}
  - {name: log, image: "docker.io/library/fluentd:1"}
`
	const mutators = `
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: pull}
spec:
  applyTo: [{groups: [""], versions: [v1], kinds: [Pod], operations: [CREATE]}]
  match: {scope: Namespaced, excludedNamespaces: [kube-*], labelSelector: {matchLabels: {app: web}}}
  location: spec.containers[name:*].imagePullPolicy
  parameters: {assign: {value: Always}}
---
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: sidecar}
spec:
  applyTo: [{groups: [""], versions: [v1], kinds: [Pod], operations: [CREATE]}]
  location: spec.containers[name:proxy]
  parameters:
    pathTests: [{subPath: "spec.containers[name:proxy]", condition: MustNotExist}]
    assign: {value: {name: proxy, image: envoy}}
---
apiVersion: mutations.gatekeeper.sh/v1alpha1
kind: AssignImage
metadata: {name: mirror}
spec:
  applyTo: [{groups: [""], versions: [v1], kinds: [Pod]}]
  location: spec.containers[name:*].image
  parameters: {assignDomain: mirror.example.com}
---
apiVersion: mutations.gatekeeper.sh/v1beta1
kind: AssignMetadata
metadata: {name: namespace}
spec:
  match: {kinds: [{apiGroups: [""], kinds: [Pod]}]}
  location: metadata.annotations.namespace
  parameters: {assign: {fromMetadata: {field: namespace}}}
---
apiVersion: mutations.gatekeeper.sh/v1
kind: ModifySet
metadata: {name: args}
spec:
  applyTo: [{groups: [""], versions: [v1], kinds: [Pod]}]
  match: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}}
  location: spec.containers[name:main].args
  parameters: {operation: merge, values: {fromList: [--verbose]}}
`
	const want = `
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}, annotations: {namespace: default}}
spec:
  containers:
  - {name: main, image: mirror.example.com/nginx, imagePullPolicy: Always, args: [--verbose]}
  - {name: log, image: "mirror.example.com/library/fluentd:1", imagePullPolicy: Always}
  - {name: proxy, image: mirror.example.com/envoy, imagePullPolicy: Always}
`
	written, err := g.try(t.Context(), oneObject(t, want), "default")
	if err != nil {
		t.Fatal(err)
	}
	g.Apply(t, mutators)
	g.says(t, "Assign/pull running", "Assign/sidecar running", "AssignImage/mirror running", "AssignMetadata/namespace running", "ModifySet/args running")
	cluster.Eventually(t, cluster.Patience, "the Pod is mutated", func(ctx context.Context) error {
		got, err := g.try(ctx, oneObject(t, pod), "default")
		if err != nil {
			return err
		}
		if diff := cmp.Diff(written.Object, got.Object); diff != "" {
			return fmt.Errorf("(- written so):\n%s", diff)
		}
		return nil
	})
	g.updates(t, oneObject(t, pod))
	if _, err := g.Kubectl(t, []byte(mutators), "delete", "--filename=-"); err != nil {
		t.Fatal(err)
	}
	g.says(t)
}

// updates stores a Pod for real: an update is mutated too, where that is asked for.
func (g *gatekeeperInstall) updates(t *testing.T, pod *unstructured.Unstructured) {
	pods := g.Dynamic.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace("default")
	created, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := pods.Delete(t.Context(), pod.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Error(err)
		}
	}()
	change := created.DeepCopy()
	change.SetAnnotations(nil)
	containers, _, err := unstructured.NestedSlice(change.Object, "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	containers[0].(map[string]any)["image"] = "nginx:2"
	if err := unstructured.SetNestedSlice(change.Object, containers, "spec", "containers"); err != nil {
		t.Fatal(err)
	}
	updated, err := pods.Update(t.Context(), change, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	containers, _, _ = unstructured.NestedSlice(updated.Object, "spec", "containers")
	if got, want := containers[0].(map[string]any)["image"], "mirror.example.com/nginx:2"; got != want {
		t.Errorf("updated image %v, want %s", got, want)
	}
	if got := updated.GetAnnotations()["namespace"]; got != "default" {
		t.Errorf("updated annotation %q", got)
	}
}

func oneObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	for doc, err := range manifest.ReadStream("object", strings.NewReader(text)) {
		if err != nil {
			t.Fatal(err)
		}
		if doc.Object != nil {
			return doc.Object
		}
	}
	t.Fatal("no object")
	return nil
}

// awaitSpec waits until a Thing without a spec gets this one.
func (g *gatekeeperInstall) awaitSpec(t *testing.T, want string) {
	t.Helper()
	wanted := oneObject(t, "{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}, spec: "+want+"}")
	cluster.Eventually(t, cluster.Patience, "the spec "+want, func(ctx context.Context) error {
		got, err := g.try(ctx, oneObject(t, "{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}, spec: {}}"), "default")
		if err != nil {
			return err
		}
		if diff := cmp.Diff(wanted.Object, got.Object); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// Mutators that contradict each other are off, until they do not.
func (g *gatekeeperInstall) conflict(t *testing.T) {
	g.Apply(t, assign("a", "spec.x.v", "1")+"---"+assign("c", "spec.z", "here"))
	g.awaitSpec(t, "{x: {v: 1}, z: here}")
	g.Apply(t, assign("b", "'spec.x[name: n].v'", "2"))
	list := g.says(t, "Assign/a conflict", "Assign/b conflict", "Assign/c running")
	if want := "the following mutators have conflicting schemas: [Assign.mutations.gatekeeper.sh /a,Assign.mutations.gatekeeper.sh /b]"; list.Lines[0].Text != want {
		t.Errorf("conflict %q, want %q", list.Lines[0].Text, want)
	}
	g.awaitSpec(t, "{z: here}")
	g.event(t, "MutatorConflict", "b")
	g.delete(t, "assign/b")
	g.says(t, "Assign/a running", "Assign/c running")
	g.awaitSpec(t, "{x: {v: 1}, z: here}")
	g.delete(t, "assign/a", "assign/c")
	g.says(t)
}

// event waits for an event about an Assign.
func (g *gatekeeperInstall) event(t *testing.T, reason, name string) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, reason+" of "+name, func(ctx context.Context) error {
		list, err := g.Kubernetes.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == reason && e.Regarding.Kind == "Assign" && e.Regarding.Name == name {
				return nil
			}
		}
		return errors.New("there is none")
	})
}

// What is stored although it is not valid, because Gatekeeper is not there to refuse
// it, does not take away what was there before.
func (g *gatekeeperInstall) invalid(t *testing.T) {
	g.Apply(t, assign("a", "spec.x", "1"))
	g.awaitSpec(t, "{x: 1}")
	g.Apply(t, assign("a", "'spec.x['", "2")+"---"+assign("b", "metadata.name", "2"))
	list := g.says(t, "Assign/a outdated", "Assign/b refused")
	if text := list.Lines[0].Text; !strings.Contains(text, "spec.location") {
		t.Errorf("of the field at fault there is nothing in %q", text)
	}
	g.event(t, "MutatorInvalid", "a")
	g.event(t, "MutatorInvalid", "b")
	g.awaitSpec(t, "{x: 1}")
	g.Apply(t, assign("a", "spec.w", "2"))
	g.says(t, "Assign/a running", "Assign/b refused")
	g.awaitSpec(t, "{w: 2}")
	g.delete(t, "assign/a", "assign/b")
	g.says(t)
	g.awaitSpec(t, "{}")
}

// Whom Gatekeeper leaves alone.
func (g *gatekeeperInstall) leftAlone(t *testing.T) {
	g.Apply(t, `
apiVersion: v1
kind: Namespace
metadata: {name: e2e-labelled, labels: {admission.gatekeeper.sh/ignore: "no"}}
---
apiVersion: v1
kind: Namespace
metadata: {name: e2e-excluded}
---
apiVersion: v1
kind: Namespace
metadata: {name: gatekeeper-system}
`)
	g.Apply(t, ownerLabel("shop"))
	g.awaitOwner(t, "default", "shop")
	g.awaitOwner(t, "e2e-excluded", "shop")
	if got, err := g.ownerOf(t.Context(), "e2e-labelled"); err != nil || got != "" {
		t.Errorf("in a namespace with the label the owner is %q, %v", got, err)
	}
	config := func(namespace, process, pattern string) string {
		return fmt.Sprintf(`
apiVersion: config.gatekeeper.sh/v1alpha1
kind: Config
metadata: {name: config, namespace: %s}
spec: {match: [{processes: [%s], excludedNamespaces: [%q]}]}
`, namespace, process, pattern)
	}
	g.Apply(t, config("default", "'*'", "default"))
	g.awaitOwner(t, "default", "") // there is no other
	g.Apply(t, config("gatekeeper-system", "mutation-webhook", "e2e-ex*"))
	g.awaitOwner(t, "default", "shop")
	g.awaitOwner(t, "e2e-excluded", "")
	g.Apply(t, config("gatekeeper-system", "webhook", "*"))
	g.awaitOwner(t, "e2e-excluded", "shop")

	for _, resource := range []schema.GroupVersionResource{
		{Group: "config.gatekeeper.sh", Version: "v1alpha1", Resource: "configs"},
		{Group: "mutations.gatekeeper.sh", Version: "v1", Resource: "assignmetadata"},
	} {
		list, err := g.Dynamic.Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) == 0 {
			t.Fatalf("%s: %v, %v", resource.Resource, list, err)
		}
		for _, obj := range list.Items {
			if obj.GetLabels()["owner"] != "" {
				t.Errorf("%s %s has been mutated", resource.Resource, obj.GetName())
			}
		}
	}
	g.delete(t, "configs.config.gatekeeper.sh", "config", "--namespace=default")
	g.delete(t, "configs.config.gatekeeper.sh", "config", "--namespace=gatekeeper-system")
}

// The kinds go, and mapd with mutators goes on without any; they come back.
func (g *gatekeeperInstall) definitions(t *testing.T) {
	g.awaitOwner(t, "default", "shop")
	g.delete(t, gatekeeperKinds(t))
	g.awaitOwner(t, "default", "")
	g.says(t)
	g.entry(t)
	g.WaitReady(t)
	g.define(t)
	cluster.Eventually(t, cluster.Patience, "the kind is served again", func(context.Context) error {
		_, err := g.Kubectl(t, []byte(ownerLabel("back")), "apply", "--filename=-")
		return err
	})
	g.awaitOwner(t, "default", "back")
}

// Who runs the doctor learns what became of the mutators, and of a Gatekeeper that
// mutates as well.
func (g *gatekeeperInstall) doctor(t *testing.T) {
	g.says(t, "AssignMetadata/owner running")
	kubeconfig := g.Kubeconfig(t, g.Config, "")
	wants := func(want ...string) {
		t.Helper()
		out, _, err := g.Mapd.Mapd(t, kubeconfig, "doctor")
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range want {
			if !strings.Contains(out, line) {
				t.Errorf("doctor does not say %q:\n%s", line, out)
			}
		}
	}
	wants("√ Gatekeeper's mutators: 1 running")
	g.Apply(t, `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: gatekeeper-mutating-webhook-configuration}
webhooks:
- name: mutation.gatekeeper.sh
  clientConfig: {url: "https://localhost:1/v1/mutate"}
  sideEffects: None
  failurePolicy: Ignore
  admissionReviewVersions: [v1]
  rules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [nothings]}]
`)
	defer g.delete(t, "mutatingwebhookconfiguration/gatekeeper-mutating-webhook-configuration")
	g.Apply(t, assign("b", "metadata.name", "2"))
	g.says(t, "Assign/b refused", "AssignMetadata/owner running")
	wants("× mutator Assign/b: refused:", "‼ Gatekeeper's mutators: Gatekeeper mutates as well, by gatekeeper-mutating-webhook-configuration")
}

// A mapd that may not read mutators says so, and serves what else there is.
func (g *gatekeeperInstall) withoutRights(t *testing.T) {
	g.delete(t, "clusterrolebinding/mapd-legacy")
	old := g.Replicas()
	g.AddReplica(t, "--legacy=on")
	g.WaitReady(t)
	for _, r := range old {
		g.Remove(t, r)
	}
	list := g.says(t)
	if len(list.Problems) != 5 || // four kinds, and Gatekeeper's Config
		!strings.Contains(list.Problems[0], "forbidden") {
		t.Errorf("problems %q", list.Problems)
	}
	g.entry(t)
}

// What the overlay has added goes with the rest; the mutators stay.
func (g *gatekeeperInstall) uninstalled(t *testing.T) {
	if _, code, err := g.Mapd.Mapd(t, g.Kubeconfig(t, g.Config, ""), "uninstall"); err != nil || code != 0 {
		t.Fatalf("code %d, %v", code, err)
	}
	wantLeft(t, g.Cluster, 0, "")
	if out, err := g.Kubectl(t, nil, "get", "assignmetadata", "--output=name"); err != nil || !strings.Contains(out, "/owner") {
		t.Errorf("mutators: %s, %v", out, err)
	}
}
