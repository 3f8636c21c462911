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
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// besidePolicies are moved from Kyverno to mapd and to the API server. They are of each
// group and say what people write; none changes again what it has made.
const besidePolicies = `
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: team}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [Pod]}}]}
    exclude: {any: [{resources: {namespaces: [prod]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {+(team): "{{ request.namespace }}"}}}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: pull}
spec:
  rules:
  - name: always
    match: {any: [{resources: {kinds: [Pod]}}]}
    mutate: {patchStrategicMerge: {spec: {containers: [{(image): "*:latest", imagePullPolicy: Always}]}}}
  - name: secret
    match: {any: [{resources: {kinds: [Pod]}}]}
    preconditions: {any: [{key: corp.example.com, operator: AnyIn, value: "{{ images.containers.*.registry }}"}]}
    mutate: {patchStrategicMerge: {spec: {imagePullSecrets: [{name: corp}]}}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: requests}
spec:
  rules:
  - name: memory
    match: {any: [{resources: {kinds: [Pod]}}]}
    mutate:
      foreach:
      - list: request.object.spec.containers
        patchStrategicMerge:
          spec: {containers: [{(name): "{{ element.name }}", resources: {requests: {+(memory): 64Mi}}}]}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: owner}
spec:
  background: false
  rules:
  - name: written
    match: {any: [{resources: {kinds: [ConfigMap], namespaceSelector: {matchLabels: {stage: prod}}}}]}
    mutate:
      patchesJson6902: |-
        - {op: add, path: /metadata/annotations/owner, value: "{{ request.userInfo.username }}"}
---
apiVersion: kyverno.io/v1
kind: Policy
metadata: {name: own, namespace: shop}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {own: "yes"}}}}
---
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: grace}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}
  matchConditions: [{name: longer, expression: 'object.spec.?terminationGracePeriodSeconds.orValue(30) > 10'}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{spec: Object.spec{terminationGracePeriodSeconds: 10}}"}
`

// besideObjects returns objects of which each policy means some.
func besideObjects(t *testing.T) (all []*unstructured.Unstructured) {
	t.Helper()
	specs := []string{
		`{containers: [{name: a, image: "nginx:latest"}]}`,
		`{containers: [{name: a, image: "nginx:1.27", imagePullPolicy: IfNotPresent}, {name: b, image: "app:latest", imagePullPolicy: Never}]}`,
		`{containers: [{name: a, image: "corp.example.com/a:1", resources: {requests: {memory: 1Gi}}}], terminationGracePeriodSeconds: 5}`,
		`{containers: [{name: a, image: "corp.example.com/a:latest"}, {name: b, image: "b:1"}], imagePullSecrets: [{name: other}], terminationGracePeriodSeconds: 60}`,
		`{initContainers: [{name: i, image: "i:latest", imagePullPolicy: Never}], containers: [{name: a, image: "a:2", resources: {limits: {memory: 2Gi}}}]}`,
	}
	labels := []string{`{app: web}`, `{app: web, team: mine}`}
	template := func(l, s, restart string) string {
		return fmt.Sprintf(`{metadata: {labels: %s}, spec: %s}`, l, strings.TrimSuffix(s, "}")+restart+"}")
	}
	n := 0
	add := func(kind, group, l, body string) {
		for _, namespace := range []string{"shop", "prod"} {
			n++
			all = append(all, oneObject(t, fmt.Sprintf(`{apiVersion: %s, kind: %s, metadata: {name: o-%d, namespace: %s, labels: %s}%s}`, group, kind, n, namespace, l, body)))
		}
	}
	for _, l := range labels {
		add("ConfigMap", "v1", l, "")
		for _, s := range specs {
			add("Pod", "v1", l, ", spec: "+s)
			add("Deployment", "apps/v1", l, ", spec: {selector: {matchLabels: {app: web}}, template: "+template(l, s, "")+"}")
			add("CronJob", "batch/v1", l, ", spec: {schedule: '0 4 * * *', jobTemplate: {spec: {template: "+template(l, s, ", restartPolicy: Never")+"}}}")
		}
		add("StatefulSet", "apps/v1", l, ", spec: {serviceName: a, selector: {matchLabels: {app: web}}, template: "+template(l, specs[0], "")+"}")
		add("DaemonSet", "apps/v1", l, ", spec: {selector: {matchLabels: {app: web}}, template: "+template(l, specs[1], "")+"}")
		add("ReplicaSet", "apps/v1", l, ", spec: {selector: {matchLabels: {app: web}}, template: "+template(l, specs[3], "")+"}")
		add("Job", "batch/v1", l, ", spec: {manualSelector: true, selector: {matchLabels: {app: web}}, template: "+template(l, specs[2], ", restartPolicy: Never")+"}")
	}
	return all
}

// kyvernoMove is a cluster in which Kyverno and mapd run.
type kyvernoMove struct {
	*promotion
	kyverno *cluster.Kyverno
	objects []*unstructured.Unstructured
	// plain is what the server makes of the objects without anybody, want what it makes of
	// them with Kyverno.
	plain, want []any
}

// TestKyvernoBeside follows docs/move/kyverno.md with Kyverno's own admission controller:
// from a cluster in which Kyverno mutates to one in which API servers do, back at every step
// and on again. After each, each object is the same as with Kyverno alone.
func TestKyvernoBeside(t *testing.T) {
	if os.Getenv("MAPD_E2E_KYVERNO") == "" {
		t.Skip("it builds Kyverno, which takes twenty minutes: make kyverno")
	}
	t.Parallel()
	m := &kyvernoMove{promotion: newPromotion(t), objects: besideObjects(t)}
	m.Apply(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: prod, labels: {stage: prod}}}\n")
	m.kyverno = cluster.StartKyverno(t, m.Cluster)
	m.plain = m.made(t)

	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "policies"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "policies", "all.yaml"), []byte(besidePolicies), 0o600); err != nil {
		t.Fatal(err)
	}
	m.shell(t, dir, "kubectl apply -f policies/")
	m.settled(t)
	changed := 0
	for i := range m.want {
		if !cmp.Equal(m.plain[i], m.want[i]) {
			changed++
		}
	}
	t.Logf("Kyverno changes %d of %d objects", changed, len(m.objects))
	if changed < len(m.objects)*2/3 {
		t.Errorf("Kyverno changes %d of %d objects", changed, len(m.objects))
	}

	const replicas = "its replicas are no Pods here: after runs it with their addresses"
	r := newReader(t, m.Mapd, dir, map[string]string{
		"mapd rollout status": replicas, "mapd promote --all --allow-window --dry-run": replicas, "mapd promote --all --allow-window --canary-least=0": replicas,
	})
	r.codes["mapd migrate kyverno policies/ --api-group mapd.dev --output-dir own/"] = 1 // not all is exact
	r.follow(t, "docs/move/kyverno.md", nil, func(command string) { m.after(t, dir, command) })
	r.done(t, 8)
}

// shell runs a command as the page has it.
func (m *kyvernoMove) shell(t *testing.T, dir, command string) string {
	t.Helper()
	out, err := newReader(t, m.Mapd, dir, nil).run(t.Context(), command)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return out
}

// made is what becomes of each object, its error if it is refused.
func (m *kyvernoMove) made(t *testing.T) []any {
	t.Helper()
	out := make([]any, len(m.objects))
	var all sync.WaitGroup
	next := make(chan int)
	for range 4 {
		all.Go(func() {
			for i := range next {
				got, err := createdFrom(t.Context(), m.Cluster, m.objects[i].DeepCopy(), m.objects[i].GetNamespace())
				switch status := apierrors.APIStatus(nil); {
				case errors.As(err, &status):
					out[i] = "refused: " + err.Error()
				case err != nil:
					out[i] = err.Error()
				default:
					out[i] = sortedLists(got.Object)
				}
			}
		})
	}
	for i := range m.objects {
		next <- i
	}
	close(next)
	all.Wait()
	return out
}

// sortedLists sorts lists of objects: Kyverno and a merge add to them at other ends.
func sortedLists(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			v[k] = sortedLists(e)
		}
	case []any:
		for i, e := range v {
			v[i] = sortedLists(e)
		}
		slices.SortFunc(v, func(a, b any) int { return strings.Compare(asJSON(a), asJSON(b)) })
	}
	return v
}

func asJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// settled waits until Kyverno has all policies, and takes what becomes of the objects.
func (m *kyvernoMove) settled(t *testing.T) {
	t.Helper()
	k := &kyvernoReader{m.Cluster}
	const probe = `{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: shop}, spec: {containers: [{name: a, image: "corp.example.com/a:latest", imagePullPolicy: Never}]}}`
	for path, want := range map[string]any{
		"metadata.labels": map[string]any{"team": "shop"}, "spec.containers.0.imagePullPolicy": "Always", "spec.containers.0.resources.requests": map[string]any{"memory": "64Mi"},
		"spec.imagePullSecrets.0.name": "corp", "spec.terminationGracePeriodSeconds": int64(10),
	} {
		k.becomes(t, probe, path, want)
	}
	k.becomes(t, kyvernoConfig, "metadata.labels", map[string]any{"own": "yes"})
	cluster.Eventually(t, cluster.Patience, "policy owner", func(ctx context.Context) error {
		got, err := m.Kubernetes.CoreV1().ConfigMaps("prod").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && got.Annotations["owner"] != "admin" {
			err = fmt.Errorf("annotations %v", got.Annotations)
		}
		return err
	})
	m.want = m.made(t)
}

// same waits until all objects become what Kyverno alone makes of them.
func (m *kyvernoMove) same(t *testing.T, step string) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, step, func(context.Context) error {
		got := m.made(t)
		var differ []string
		for i := range got {
			if d := cmp.Diff(m.want[i], got[i]); d != "" {
				differ = append(differ, fmt.Sprintf("%s (-Kyverno +now):\n%s", m.objects[i].GetKind(), d))
			}
		}
		if len(differ) > 0 {
			return fmt.Errorf("%d of %d objects differ, the first: %s", len(differ), len(got), differ[0])
		}
		return nil
	})
	t.Logf("%s: %d objects are as with Kyverno alone", step, len(m.objects))
}

// after checks what a command of the page has done, and takes it back and does it again as
// the page says.
func (m *kyvernoMove) after(t *testing.T, dir, command string) {
	t.Helper()
	again := func(back string) {
		t.Helper()
		m.shell(t, dir, back)
		m.same(t, back)
		m.shell(t, dir, command)
		m.same(t, command+", again")
	}
	switch {
	case strings.HasPrefix(command, "mapd migrate"):
		m.same(t, command)
	case strings.HasPrefix(command, "kubectl annotate --local"):
		m.same(t, command)
		m.shadows(t)
		again("kubectl delete -f own/")
		m.shadows(t)
		m.create(t)
	case strings.HasPrefix(command, "mapd audit"):
		m.same(t, command)
		m.audited(t, dir, command)
	case strings.Contains(command, "percent=50"):
		m.same(t, command)
	case command == "kubectl annotate -f own/ mapd.dev/mode-":
		m.same(t, command)
		m.enforces(t, 50)
		again("kubectl annotate --overwrite -f own/ mapd.dev/mode=shadow")
	case strings.Contains(command, "percent-"):
		m.same(t, command)
		m.enforces(t, 100)
	case command == "kubectl delete -f policies/":
		m.same(t, command)
		again("kubectl apply -f policies/")
		m.promote(t)
	case strings.HasSuffix(command, "--replicas=0"):
		m.kyverno.Stop(t, cluster.Patience) // nobody else does what the Deployment says
		m.same(t, command)
	case strings.HasPrefix(command, "kubectl delete mutatingwebhookconfigurations"):
		left := m.shell(t, dir, "kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations -o name")
		if strings.Contains(left, "kyverno") || !strings.Contains(left, "mapd.dev") {
			t.Errorf("left are\n%s", left)
		}
		m.same(t, command)
	default:
		t.Errorf("nothing looks at what %s does", command)
	}
}

// bindingStatus is what mapd says of a binding.
type bindingStatus struct {
	Policy, Binding, Mode, Percent        string
	Seen, Would, Changed, Failed, LeftOut int
}

// counts waits until what mapd counts of each binding is as want has it.
func (m *kyvernoMove) counts(t *testing.T, what string, want func(all []bindingStatus) error) {
	t.Helper()
	args := []string{"rollout", "status", "-o", "json"}
	for _, r := range m.Replicas() {
		args = append(args, "--replica=https://"+r.Addr)
	}
	cluster.Eventually(t, cluster.Patience, what, func(context.Context) error {
		out, code, err := m.Mapd.Mapd(t, m.config, args...)
		if err != nil || code != 0 {
			return fmt.Errorf("exit code %d, %v\n%s", code, err, out)
		}
		var status struct{ Bindings []bindingStatus }
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			return err
		}
		if len(status.Bindings) < 10 {
			return fmt.Errorf("%d bindings", len(status.Bindings))
		}
		for _, b := range status.Bindings {
			if b.Failed > 0 {
				t.Fatalf("mapd rollout status: a policy fails: %+v", b)
			}
		}
		return want(status.Bindings)
	})
}

// shadows waits until each policy would have changed something.
func (m *kyvernoMove) shadows(t *testing.T) {
	t.Helper()
	m.counts(t, "each policy in shadow", func(all []bindingStatus) error {
		seen, would := 0, 0
		for _, b := range all {
			if b.Mode != "shadow" || b.Would == 0 || b.Changed > 0 {
				return fmt.Errorf("%+v", b)
			}
			seen, would = seen+b.Seen, would+b.Would
		}
		t.Logf("%d bindings in shadow have seen %d objects and would have changed %d", len(all), seen, would)
		return nil
	})
}

// enforces waits until policies have changed something in a share of all objects.
func (m *kyvernoMove) enforces(t *testing.T, percent int) {
	t.Helper()
	m.counts(t, fmt.Sprintf("policies on %d %%", percent), func(all []bindingStatus) error {
		changed, left := 0, 0
		for _, b := range all {
			if b.Mode != "enforce" || b.Percent != fmt.Sprint(percent) || percent == 100 && b.Changed == 0 {
				return fmt.Errorf("%+v", b)
			}
			changed, left = changed+b.Changed, left+b.LeftOut
		}
		if changed == 0 || left == 0 {
			return fmt.Errorf("%d changed, %d left out", changed, left)
		}
		t.Logf("%d bindings on %d %% have changed %d objects", len(all), percent, changed)
		return nil
	})
}

// create has the server store the objects, under other names.
func (m *kyvernoMove) create(t *testing.T) {
	t.Helper()
	for _, o := range m.objects {
		o = o.DeepCopy()
		o.SetName("stored-" + o.GetName())
		resource, _ := apimeta.UnsafeGuessKindToResource(o.GroupVersionKind())
		if _, err := m.Dynamic.Resource(resource).Namespace(o.GetNamespace()).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// audited checks that mapd's policies would not change what Kyverno has stored.
func (m *kyvernoMove) audited(t *testing.T, dir, command string) {
	t.Helper()
	evaluated := 0
	for _, o := range m.objects {
		// Kyverno leaves out ReplicaSets, and so do the policies.
		if o.GetNamespace() == "shop" && o.GetKind() != "ReplicaSet" {
			evaluated++
		}
	}
	out := m.shell(t, dir, command)
	if !strings.Contains(out, fmt.Sprintf("%d objects evaluated: 0 would change, 0 would be denied, for 0 a policy fails\n", evaluated)) {
		t.Errorf("%s:\n%s", command, out)
	}
}

// promote moves the policies to the API servers, back, and there again, while objects are
// written, so that there is something to compare.
func (m *kyvernoMove) promote(t *testing.T) {
	t.Helper()
	for _, args := range [][]string{{"--dry-run"}, {}, {"--demote"}, {}} {
		args = append([]string{"--all", "--allow-window", "--canary-least=0"}, args...)
		done := make(chan struct{})
		var writing sync.WaitGroup
		if len(args) == 3 {
			writing.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						m.made(t)
					}
				}
			})
		}
		out := m.run(t, 0, args...)
		close(done)
		writing.Wait()
		t.Logf("mapd promote %s:\n%s", strings.Join(args, " "), out)
		m.same(t, "mapd promote "+strings.Join(args, " "))
	}
}
