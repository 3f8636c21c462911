//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// Policies and bindings that are not enforced, or for a share of the objects only, on an
// API server.
func TestRollout(t *testing.T) {
	t.Parallel()
	a := &admin{cluster.Installed(t, cluster.InstallOptions{})}
	a.NeedProcesses(t)
	r := &rollout{admin: a, warnings: &warnings{}, namespace: "e2e-rollout", name: "e2e-rollout"}
	config := rest.CopyConfig(a.Config)
	config.WarningHandler = r.warnings
	r.client = a.Client(t, config)
	a.namespace(t, r.namespace, map[string]string{"rollout": "e2e"})
	for _, part := range []part{{"modes", r.modes}, {"shares", r.shares}, {"deployments", r.deployments}, {"outage", r.outage}} {
		t.Run(part.name, part.run)
	}
}

type rollout struct {
	*admin
	client          kubernetes.Interface
	warnings        *warnings
	namespace, name string
}

// policy matches ConfigMaps of the namespace.
func (r *rollout) policy() drawing {
	return drawing{name: r.name, resources: "configmaps", namespaces: "rollout: e2e", mutations: []string{label("rollout", `"yes"`)}}
}

// annotate changes the policy (map) or its binding (mapb); "key-" takes an annotation away.
func (r *rollout) annotate(t *testing.T, kind, annotation string) {
	t.Helper()
	r.mustKubectl(t, "", "annotate", "--overwrite", kind, r.name, annotation)
}

// write creates a ConfigMap in a dry run, and returns the policy's label of the answer
// and the warnings that the client saw.
func (r *rollout) write(ctx context.Context) (labelled, warned string, err error) {
	r.warnings.take()
	o, err := r.client.CoreV1().ConfigMaps(r.namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}},
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return "", "", err
	}
	return o.Labels["rollout"], strings.Join(r.warnings.take(), "\n"), nil
}

// becomes waits until writes are answered as a mode has them, and then checks that the
// metric of policies that are not enforced counts a write if, and only if, it is one.
func (r *rollout) becomes(t *testing.T, what string, mode api.Mode) {
	t.Helper()
	check := func(ctx context.Context) error {
		labelled, warned, err := r.write(ctx)
		if err != nil {
			return err
		}
		if (labelled == "yes") != (mode == api.Enforce) || (warned != "") != (mode == api.Warn) || mode == api.Warn && !strings.Contains(warned, "would change") {
			return fmt.Errorf("label %q, warnings %q", labelled, warned)
		}
		would, err := r.would(ctx)
		if err != nil {
			return err
		}
		if _, _, err := r.write(ctx); err != nil {
			return err
		}
		after, err := r.would(ctx)
		if err != nil {
			return err
		}
		want := 1.0
		if mode == api.Enforce {
			want = 0
		}
		if after-would != want {
			return fmt.Errorf("mapd_shadow_decisions_total grew by %v, want %v", after-would, want)
		}
		return nil
	}
	cluster.Eventually(t, cluster.Patience, what+": "+mode.String(), check)
}

// would is how many writes the policy would have changed.
func (r *rollout) would(ctx context.Context) (float64, error) {
	return metric(ctx, r.Replicas()[0], "mapd_shadow_decisions_total", fmt.Sprintf(`outcome="changed",policy=%q`, r.name))
}

// modes changes the annotations of a policy and its binding.
func (r *rollout) modes(t *testing.T) {
	r.draw(t, r.policy())
	r.becomes(t, "no annotation", api.Enforce)
	r.annotate(t, "map", "mapd.dev/mode=shadow")
	r.becomes(t, "the policy's mode", api.Shadow)
	r.annotate(t, "map", "mapd.dev/mode=warn")
	r.becomes(t, "an edit of the policy's mode", api.Warn)
	r.annotate(t, "mapb", "mapd.dev/mode=enforce")
	r.becomes(t, "the binding's mode in the place of the policy's", api.Enforce)
	r.annotate(t, "mapb", "mapd.dev/mode=shadow")
	r.becomes(t, "an edit of the binding's mode", api.Shadow)
	r.annotate(t, "mapb", "mapd.dev/mode-")
	r.becomes(t, "the policy's mode, once its binding has none", api.Warn)
	r.annotate(t, "map", "mapd.dev/mode-")
	r.becomes(t, "no annotation again", api.Enforce)
	out := r.kubectl(t, "", "annotate", "--overwrite", "map", r.name, "mapd.dev/mode=sometimes")
	if out.code == 0 || !strings.Contains(out.stderr, "mapd.dev/mode") {
		t.Errorf("an unknown mode: %s", out)
	}
}

// shares creates the same objects with growing shares and compares what the server
// stores with what mapd eval says of the same files.
func (r *rollout) shares(t *testing.T) {
	r.draw(t, r.policy())
	dir := t.TempDir()
	objects := filepath.Join(dir, "objects.yaml")
	var manifest strings.Builder
	for i := range 300 {
		fmt.Fprintf(&manifest, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: share-%03d, namespace: %s}\n", i, r.namespace)
	}
	if err := os.WriteFile(objects, []byte(manifest.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var before []string
	for _, percent := range []string{"1", "10", "100"} {
		r.annotate(t, "mapb", "mapd.dev/percent="+percent)
		want := r.predicted(t, r.policy(), percent, objects)
		if percent == "100" && len(want) != 300 || percent == "10" && (len(want) < 10 || len(want) > 60) {
			t.Fatalf("mapd eval has %d objects in %s percent", len(want), percent)
		}
		var got []string
		cluster.Eventually(t, cluster.Patience, percent+" percent of the objects", func(ctx context.Context) error {
			// The binding of before may still count at first.
			if err := r.Kubernetes.CoreV1().ConfigMaps(r.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
				return err
			}
			if _, err := r.KubectlAs(t, r.Config, []byte(manifest.String()), "create", "-f", "-"); err != nil {
				return err
			}
			all, err := r.Kubernetes.CoreV1().ConfigMaps(r.namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			got = nil
			for _, o := range all.Items {
				if o.Labels["rollout"] == "yes" {
					got = append(got, o.Name)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				return fmt.Errorf("the server changed %q, mapd eval %q", got, want)
			}
			return nil
		})
		for _, name := range before {
			if !slices.Contains(got, name) {
				t.Errorf("%s is not in %s percent, and was in less", name, percent)
			}
		}
		before = got
		t.Logf("%s percent: %d of 300 objects", percent, len(got))
	}
}

// predicted returns the names of the objects that mapd eval says a binding with a share
// of its policy changes.
func (r *rollout) predicted(t *testing.T, d drawing, percent, objects string) (names []string) {
	t.Helper()
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	text := "apiVersion: v1\nkind: Namespace\nmetadata: {name: " + r.namespace + ", labels: {rollout: e2e}}\n" +
		strings.ReplaceAll(d.yaml(), "kind: MutatingAdmissionPolicyBinding\nmetadata: {", "kind: MutatingAdmissionPolicyBinding\nmetadata: {annotations: {mapd.dev/percent: \""+percent+"\"}, ")
	if err := os.WriteFile(policies, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out := r.mapd(t, "eval", "-p", policies, "-f", objects, "-o", "name")
	if out.code != 0 {
		t.Fatal(out)
	}
	for name := range strings.FieldsSeq(out.stdout) {
		names = append(names, name[strings.LastIndex(name, "/")+1:])
	}
	slices.Sort(names)
	return names
}

// deployments creates Pods as the controllers of Deployments do, of two ReplicaSets each,
// with names and without: all of a Deployment are on the side that mapd eval says.
func (r *rollout) deployments(t *testing.T) {
	d := r.policy()
	d.resources = "pods"
	r.draw(t, d)
	r.annotate(t, "mapb", "mapd.dev/percent=40")
	const deployments = 25
	pod := func(name, set, hash string) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {%sgenerateName: %s-, namespace: %s, labels: {pod-template-hash: %s}, ownerReferences: "+
			"[{apiVersion: apps/v1, kind: ReplicaSet, name: %[2]s, uid: 00000000-0000-0000-0000-000000000001, controller: true, blockOwnerDeletion: true}]}\n"+
			"spec: {containers: [{name: c, image: example.com/c}]}\n", name, set, r.namespace, hash)
	}
	var named, unnamed strings.Builder
	for i := range deployments {
		for _, hash := range []string{"7d4b9", "58c6f"} {
			set := fmt.Sprintf("web-%d-%s", i, hash)
			named.WriteString(pod("name: "+set+"-x, ", set, hash))
			unnamed.WriteString(pod("", set, hash))
		}
	}
	objects := filepath.Join(t.TempDir(), "pods.yaml")
	if err := os.WriteFile(objects, []byte(named.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	want := r.predicted(t, d, "40", objects)
	if len(want) < 4 || len(want) > 2*deployments-4 {
		t.Fatalf("mapd eval has %q in 40 percent", want)
	}
	now := int64(0)
	cluster.Eventually(t, cluster.Patience, "the Pods of Deployments", func(ctx context.Context) error {
		if err := r.Kubernetes.CoreV1().Pods(r.namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{}); err != nil {
			return err
		}
		if _, err := r.KubectlAs(t, r.Config, []byte(named.String()+unnamed.String()), "create", "-f", "-"); err != nil {
			return err
		}
		all, err := r.Kubernetes.CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(all.Items) != 4*deployments {
			return fmt.Errorf("%d Pods", len(all.Items))
		}
		for _, o := range all.Items {
			set := strings.TrimSuffix(o.GenerateName, "-")
			_, predicted := slices.BinarySearch(want, set+"-x")
			if changed := o.Labels["rollout"] == "yes"; changed != predicted {
				return fmt.Errorf("Pod %s: changed %v, mapd eval says %v", o.Name, changed, predicted)
			}
			deployment := set[:strings.LastIndexByte(set, '-')]
			for _, hash := range []string{"7d4b9", "58c6f"} {
				if _, other := slices.BinarySearch(want, deployment+"-"+hash+"-x"); other != predicted {
					t.Errorf("mapd eval has the Pods of %s on both sides: %q", deployment, want)
				}
			}
		}
		return nil
	})
	t.Logf("%d of %d Pods, of %d Deployments", 2*len(want), 4*deployments, deployments)
}

// outage kills mapd: a policy in shadow refuses nothing, an enforced one does.
func (r *rollout) outage(t *testing.T) {
	r.draw(t, r.policy())
	replica := r.Replicas()[0]
	for _, mode := range []api.Mode{api.Enforce, api.Shadow} {
		r.annotate(t, "map", "mapd.dev/mode="+mode.String())
		r.becomes(t, "before mapd is away", mode)
		policy := "Fail"
		if mode == api.Shadow {
			policy = "Ignore"
		}
		// For a moment the policy is in entries of both.
		cluster.Eventually(t, cluster.Patience, "the entry of a policy in mode "+mode.String(), func(ctx context.Context) error {
			c, err := r.Kubernetes.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "000.mapd.dev", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if len(c.Webhooks) != 1 || string(*c.Webhooks[0].FailurePolicy) != policy {
				return fmt.Errorf("entries %+v", c.Webhooks)
			}
			return nil
		})
		replica.Kill()
		// The server may still use a configuration of before.
		cluster.Eventually(t, cluster.Patience, "writes without mapd, mode "+mode.String(), func(ctx context.Context) error {
			labelled, _, err := r.write(ctx)
			switch {
			case mode == api.Shadow && err == nil && labelled == "":
			case mode == api.Enforce && err != nil && apierrors.IsInternalError(err) && strings.Contains(err.Error(), "failed calling webhook"):
			default:
				return errors.Join(err, fmt.Errorf("label %q", labelled))
			}
			return nil
		})
		replica.Start(t)
		r.WaitReady(t)
	}
}
