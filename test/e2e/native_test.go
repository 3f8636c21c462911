//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/gatekeeper/nativepolicies"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// TestNative has mapd put policies in the place of Gatekeeper's mutators: into
// Kubernetes' own group where the server runs policies, else into mapd's.
func TestNative(t *testing.T) {
	t.Parallel()
	nativeServers(t, func(t *testing.T, c *cluster.Cluster, group string) {
		// The results of the cases' objects, before mapd has to do anything.
		var cases []*migrateCase
		for _, known := range ownCases(t) {
			known.stored = stored(t, c, known.want)
			cases = append(cases, known)
		}
		g := newMovers(t, c, group)
		for _, known := range cases {
			t.Run(known.name, func(t *testing.T) { g.recorded(t, known) })
		}
		t.Run("changes", g.changes)
		t.Run("what stays", g.stays)
		t.Run("what others have", g.foreign)
	})
}

// TestNativeOperated does to servers and replicas what administrators do while such policies
// are in the place of mutators.
func TestNativeOperated(t *testing.T) {
	t.Parallel()
	nativeServers(t, func(t *testing.T, c *cluster.Cluster, group string) {
		g := newMovers(t, c, group)
		t.Run("restarts", g.restarts)
		t.Run("without rights", g.unseen)
		if group == api.NativeGroup { // docs/operate/run.md is about such a server
			t.Run("documented", g.documented)
		}
		t.Run("back", g.back)
		t.Run("uninstalled", g.uninstalled)
	})
}

// nativeServers runs a part of a test on each kind of server, which have the policies in a
// group.
func nativeServers(t *testing.T, run func(t *testing.T, c *cluster.Cluster, group string)) {
	t.Helper()
	var all []part
	for i, tc := range []struct {
		name    string
		options cluster.Options
		group   string
	}{
		{"a server that runs policies", cluster.Options{Native: true}, api.NativeGroup},
		{"a server that only stores them", cluster.Options{}, api.OwnGroup},
		{"a server that does not serve them", cluster.Options{Flags: []string{
			"--runtime-config=admissionregistration.k8s.io/v1/mutatingadmissionpolicies=false,admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings=false",
		}}, api.OwnGroup},
	} {
		if i > 0 && !inTurn(t, i-1, 2) {
			continue // mapd does the same on both of these
		}
		all = append(all, part{tc.name, func(t *testing.T) { run(t, cluster.Start(t, tc.options), tc.group) }})
	}
	together(t, all)
}

// newMovers installs mapd in a cluster, and the kinds of mutators and objects.
func newMovers(t *testing.T, c *cluster.Cluster, group string) *movers {
	t.Helper()
	overlay := output(t, exec.Command(cluster.Program(t, "kubectl"), "kustomize", manifests(t, "overlays", "native")))
	g := &movers{&gatekeeperInstall{cluster.Install(t, c, cluster.InstallOptions{Manifest: overlay, Replicas: 2, Flags: []string{"--legacy=native"}})}, group}
	g.define(t)
	g.Apply(t, things)
	return g
}

// movers is a cluster whose mutators are moved into policies of a group.
type movers struct {
	*gatekeeperInstall
	group string
}

func (g *movers) resources() []schema.GroupVersionResource {
	var out []schema.GroupVersionResource
	for _, r := range []string{"mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		out = append(out, schema.GroupVersionResource{Group: g.group, Version: "v1", Resource: r})
	}
	return out
}

// kept are the names of the policies that mapd keeps; each has a binding of the same
// name.
func (g *movers) kept(ctx context.Context) ([]string, error) {
	var lists [2][]string
	for i, r := range g.resources() {
		list, err := g.Dynamic.Resource(r).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=mapd," + nativepolicies.LiveLabel})
		if err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			// The probe has no mutator.
			if slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.Kind != "Namespace" }) {
				lists[i] = append(lists[i], o.GetName())
			}
		}
	}
	if !slices.Equal(lists[0], lists[1]) {
		return nil, fmt.Errorf("policies %q, bindings %q", lists[0], lists[1])
	}
	return lists[0], nil
}

func (g *movers) keeps(t *testing.T, want ...string) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, fmt.Sprintf("the policies to be %q", want), func(ctx context.Context) error {
		got, err := g.kept(ctx)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("they are %q", got)
		}
		return err
	})
}

// recorded moves mutators, and from when they act they do so without a pause.
func (g *movers) recorded(t *testing.T, c *migrateCase) {
	g.Apply(t, c.mutators)
	acts := false
	cluster.Eventually(t, cluster.Patience, "the mutators are moved", func(ctx context.Context) error {
		got, err := create(ctx, g.Cluster, c.object, metav1.DryRunAll)
		if err != nil {
			return err
		}
		if d := cmp.Diff(string(c.stored), string(own(t, got))); d != "" {
			if acts {
				t.Fatalf("while it was moved (-Gatekeeper, as stored):\n%s", d)
			}
			return errors.New(d)
		}
		acts = true
		list, err := g.said(ctx)
		if err != nil {
			return err
		}
		for _, m := range list.Lines {
			if m.State != "native" {
				return fmt.Errorf("%v", list)
			}
		}
		if len(list.Lines) == 0 || !strings.HasSuffix(list.Lines[0].Text, g.group) {
			return fmt.Errorf("%v", list)
		}
		return nil
	})
	if d := cmp.Diff(string(c.stored), string(stored(t, g.Cluster, c.object))); d != "" {
		t.Errorf("(-Gatekeeper, as stored):\n%s", d)
	}
	g.onlyPolicies(t)
	if _, err := g.Kubectl(t, []byte(c.mutators), "delete", "--filename=-"); err != nil {
		t.Fatal(err)
	}
	g.keeps(t)
	g.says(t)
	g.onlyPolicies(t)
}

// onlyPolicies waits until no server calls mapd for mutators.
func (g *movers) onlyPolicies(t *testing.T) {
	t.Helper()
	if g.group == api.NativeGroup {
		g.entry(t)
	}
}

// specs waits until a Thing gets this spec. From when it has it, it keeps it, and until
// then it has one of before.
func (g *movers) specs(t *testing.T, until func(context.Context) error, want string, before ...string) {
	t.Helper()
	parse := func(spec string) any {
		return oneObject(t, "{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}, spec: "+spec+"}").Object["spec"]
	}
	there := false
	cluster.Eventually(t, cluster.Patience, "the spec "+want, func(ctx context.Context) error {
		got, err := g.try(ctx, oneObject(t, "{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}, spec: {}}"), "default")
		if err != nil {
			return err
		}
		d := cmp.Diff(parse(want), got.Object["spec"])
		known := slices.ContainsFunc(before, func(spec string) bool { return cmp.Equal(parse(spec), got.Object["spec"]) })
		switch {
		case d == "":
			there = true
			if until != nil {
				return until(ctx)
			}
			return nil
		case there && !known || len(before) > 0 && !known:
			t.Fatalf("on the way to %s, it was %v", want, got.Object["spec"])
		}
		return errors.New(d)
	})
}

// state is a condition: what mapd says of a mutator.
func (g *movers) state(id, state, text string) func(context.Context) error {
	return func(ctx context.Context) error {
		list, err := g.said(ctx)
		if err != nil {
			return err
		}
		for _, m := range list.Lines {
			if m.ID == id && m.State == state && strings.Contains(m.Text, text) {
				return nil
			}
		}
		return fmt.Errorf("%v", list)
	}
}

func (g *movers) changes(t *testing.T) {
	g.Apply(t, assign("a", "spec.x", "one"))
	g.specs(t, g.state("Assign/a", "native", g.group), "{x: one}")
	g.keeps(t, "assign-a")
	g.owned(t)
	// From one version to the next it is one or the other.
	g.Apply(t, assign("a", "spec.w", "two"))
	g.specs(t, g.state("Assign/a", "native", g.group), "{w: two}", "{x: one}")
	for _, v := range []string{"3", "4", "5"} {
		g.Apply(t, assign("a", "spec.w", v))
	}
	g.specs(t, g.state("Assign/a", "native", g.group), "{w: 5}")
	// Those whose order matters share a policy, and part again.
	g.Apply(t, assign("b", "spec.w", "6"))
	g.specs(t, g.state("Assign/b", "native", g.group), "{w: 6}")
	g.keeps(t, "assign-a-and-assign-b")
	g.Apply(t, assign("b", "spec.z", "7"))
	g.keeps(t, "assign-a", "assign-b") // until then the one that they shared has its say
	g.specs(t, nil, "{w: 5, z: 7}")

	// What somebody writes into a policy is not left there.
	spoil := `[{"op": "replace", "path": "/spec/failurePolicy", "value": "Ignore"}, {"op": "remove", "path": "/metadata/labels/mapd.dev~1from-kind"}]`
	if _, err := g.Kubectl(t, nil, "patch", g.resources()[0].GroupResource().String(), "assign-a", "--type=json", "--patch="+spoil); err != nil {
		t.Fatal(err)
	}
	cluster.Eventually(t, cluster.Patience, "the policy is as before", func(ctx context.Context) error {
		p, err := g.Dynamic.Resource(g.resources()[0]).Get(ctx, "assign-a", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if fails, _, _ := unstructured.NestedString(p.Object, "spec", "failurePolicy"); fails != "Fail" || p.GetLabels()["mapd.dev/from-kind"] != "Assign" {
			return fmt.Errorf("%s, %v", fails, p.GetLabels())
		}
		return nil
	})
	// A policy that somebody deletes comes back; meanwhile mapd runs the mutator.
	g.delete(t, g.resources()[0].GroupResource().String()+"/assign-a")
	g.keeps(t, "assign-a", "assign-b")
	g.specs(t, g.state("Assign/a", "native", g.group), "{w: 5, z: 7}")
	g.delete(t, "assign/a", "assign/b")
	g.keeps(t)
	g.specs(t, nil, "{}")
	g.says(t)
}

// What no policy does exactly stays with mapd, also what has had one.
func (g *movers) stays(t *testing.T) {
	g.Apply(t, assign("a", "spec.v", "1"))
	g.specs(t, g.state("Assign/a", "native", g.group), "{v: 1}")
	g.Apply(t, assign("a", "spec.v", "{big: 1}")+"---"+prune)
	g.specs(t, g.state("ModifySet/prune", "running", "by mapd: differs: T21"), "{v: {big: 1}}", "{v: 1}")
	cluster.Eventually(t, cluster.Patience, "a is moved", g.state("Assign/a", "native", g.group))
	g.keeps(t, "assign-a")
	g.Apply(t, `
apiVersion: mutations.gatekeeper.sh/v1
kind: Assign
metadata: {name: a}
spec:
  applyTo: [{groups: [example.com], versions: [v1], kinds: [Thing]}]
  location: spec.v
  parameters: {assign: {externalData: {provider: p, failurePolicy: UseDefault, default: "2"}}}
`)
	cluster.Eventually(t, cluster.Patience, "a is off", g.state("Assign/a", "off", "external data"))
	g.keeps(t)
	g.specs(t, nil, "{}")
	g.delete(t, "assign/a", "modifyset/prune")
	g.specs(t, nil, "{}")
	g.says(t)
}

// A policy that somebody else has written is left alone.
func (g *movers) foreign(t *testing.T) {
	foreign := fmt.Sprintf(`
apiVersion: %s/v1
kind: MutatingAdmissionPolicy
metadata: {name: assign-a}
spec:
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [nothings]}]}
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "remove", path: "/spec"}]'}}]
`, g.group)
	g.Apply(t, foreign)
	client := g.Dynamic.Resource(g.resources()[0])
	before, err := client.Get(t.Context(), "assign-a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	g.Apply(t, assign("a", "spec.v", "1"))
	g.specs(t, g.state("Assign/a", "running", "without the labels of mapd"), "{v: 1}")
	after, err := client.Get(t.Context(), "assign-a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before.Object["spec"], after.Object["spec"]); d != "" || after.GetUID() != before.GetUID() {
		t.Errorf("the policy has been changed: %s", d)
	}
	if err := client.Delete(t.Context(), "assign-a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.specs(t, g.state("Assign/a", "native", g.group), "{v: 1}", "{v: 1}")
	g.delete(t, "assign/a")
	g.keeps(t)
	g.specs(t, nil, "{}") // a server may run for a while what was deleted
}

// The server dies and comes back, and every replica is replaced.
func (g *movers) restarts(t *testing.T) {
	g.Apply(t, assign("a", "spec.v", "1"))
	g.specs(t, g.state("Assign/a", "native", g.group), "{v: 1}")
	g.throughout(t, func() {
		g.APIServer.Kill()
		g.APIServer.Start(t)
		g.Cluster.WaitReady(t)
		g.WaitReady(t)
	})
	g.Apply(t, assign("a", "spec.v", "2"))
	g.specs(t, g.state("Assign/a", "native", g.group), "{v: 2}")
	g.throughout(t, func() { g.Roll(t) })
	g.specs(t, nil, "{v: 2}", "{v: 2}")
	g.delete(t, "assign/a")
	g.keeps(t)
	for _, r := range g.resources() {
		if _, err := g.Dynamic.Resource(r).Get(t.Context(), "assign-a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", r.Resource, err)
		}
	}
	g.specs(t, nil, "{}")
	g.says(t)
}

// A mapd that may not read the mutators any more leaves the policies that stand for
// them.
func (g *movers) unseen(t *testing.T) {
	g.Apply(t, assign("a", "spec.v", "1"))
	g.specs(t, g.state("Assign/a", "native", g.group), "{v: 1}")
	roles := g.Kubernetes.RbacV1().ClusterRoles()
	role, err := roles.Get(t.Context(), "mapd-legacy", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	may := role.DeepCopy().Rules
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, legacy.Group) })
	if role, err = roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	old := g.Replicas()
	for range old {
		g.AddReplica(t, "--legacy=native")
	}
	g.WaitReady(t)
	for _, r := range old {
		g.Remove(t, r)
	}
	if list := g.says(t); len(list.Problems) == 0 || !strings.Contains(list.Problems[0], "forbidden") {
		t.Errorf("problems %q", list.Problems)
	}
	begun := time.Now()
	g.specs(t, func(context.Context) error {
		if time.Since(begun) < 10*time.Second {
			return errors.New("too early to tell")
		}
		return nil
	}, "{v: 1}")
	g.keeps(t, "assign-a")
	role.Rules = may
	if _, err := roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	g.specs(t, g.state("Assign/a", "native", g.group), "{v: 1}")
	g.delete(t, "assign/a")
	g.keeps(t)
	g.specs(t, nil, "{}") // a server may run for a while what was deleted
}

// What docs/operate/run.md says to look at.
func (g *movers) documented(t *testing.T) {
	// A name of its own: of others the ConfigMap may still tell what was.
	g.Apply(t, assign("told", "spec.v", "1"))
	g.specs(t, g.state("Assign/told", "native", g.group), "{v: 1}")
	r := newReader(t, g.Mapd, cluster.Root(t), nil)
	shown := ""
	for _, c := range commands(t, "docs/operate/run.md") {
		if !strings.Contains(c, "mapd-gatekeeper") && !strings.Contains(c, "mapd.dev/live") {
			continue
		}
		out, err := r.run(t.Context(), c)
		if err != nil {
			t.Errorf("%s: %v\n%s", c, err, out)
		}
		shown += out
	}
	for _, want := range []string{"1 mutator: 1 native\nAssign/told  native  by the policy assign-told of " + g.group, "/assign-told", "/mapd-native-probe"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%q is not shown:\n%s", want, shown)
		}
	}
	g.delete(t, "assign/told")
	g.keeps(t)
}

// Whoever has tried it and goes back loses nothing on the way.
func (g *movers) back(t *testing.T) {
	g.Apply(t, assign("a", "spec.v", "1"))
	g.specs(t, g.state("Assign/a", "native", g.group), "{v: 1}")
	g.keeps(t, "assign-a")
	g.diagnosed(t, "√ Gatekeeper's mutators: 1 by policies, 0 by mapd (--legacy=native)")
	g.throughout(t, func() {
		old := g.Replicas()
		g.AddReplica(t, "--legacy=on")
		g.WaitReady(t)
		for _, r := range old {
			g.Remove(t, r)
		}
		g.keeps(t)
	})
	g.entry(t, "things")
	g.says(t, "Assign/a running")
	for _, r := range g.resources() {
		cluster.Eventually(t, cluster.Patience, "nothing to be left", func(ctx context.Context) error {
			list, err := g.Dynamic.Resource(r).List(ctx, metav1.ListOptions{LabelSelector: nativepolicies.LiveLabel})
			if err == nil && len(list.Items) > 0 {
				err = fmt.Errorf("there is %s", list.Items[0].GetName())
			}
			return err
		})
	}
	g.delete(t, "assign/a")
	g.specs(t, nil, "{}")
}

// uninstalled has policies in the place of a mutator, and nobody to keep them.
func (g *movers) uninstalled(t *testing.T) {
	g.Apply(t, assign("a", "spec.v", "1"))
	old := g.Replicas()
	g.AddReplica(t, "--legacy=native")
	g.WaitReady(t)
	for _, r := range old {
		g.Remove(t, r)
	}
	g.keeps(t, "assign-a")
	g.specs(t, g.state("Assign/a", "native", g.group), "{v: 1}")
	uninstall := func(want string, flags ...string) {
		out, code, err := g.Mapd.Mapd(t, g.Kubeconfig(t, g.Config, ""), append([]string{"uninstall"}, flags...)...)
		if err != nil || code != 0 {
			t.Fatalf("code %d, %v\n%s", code, err, out)
		}
		if g.group == api.NativeGroup && !strings.Contains(out, want) {
			t.Errorf("uninstall does not say %q:\n%s", want, out)
		}
	}
	uninstall("mutatingadmissionpolicy.admissionregistration.k8s.io/assign-a kept")
	g.keeps(t, "assign-a")
	uninstall("mutatingadmissionpolicy.admissionregistration.k8s.io/assign-a deleted", "--purge")
	if g.group == api.NativeGroup { // mapd's own have gone with their kinds
		g.keeps(t)
	}
}

// diagnosed waits until the doctor says it.
func (g *movers) diagnosed(t *testing.T, line string) {
	t.Helper()
	kubeconfig := g.Kubeconfig(t, g.Config, "")
	cluster.Eventually(t, cluster.Patience, "the doctor to say "+line, func(context.Context) error {
		out, _, err := g.Mapd.Mapd(t, kubeconfig, "doctor")
		if err == nil && !strings.Contains(out, line) {
			err = errors.New(out)
		}
		return err
	})
}

// throughout creates Things for show while something goes on. A mutator that sets
// spec.v misses none of those that the server takes.
func (g *movers) throughout(t *testing.T, f func()) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var n atomic.Int64
	done := make(chan struct{})
	thing := oneObject(t, "{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}, spec: {}}")
	go func() {
		defer close(done)
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				tick.Stop()
				return
			case <-tick.C:
			}
			got, err := g.try(ctx, thing, "default")
			if err != nil {
				continue // the server is away, or refuses
			}
			n.Add(1)
			if _, there, err := unstructured.NestedFieldNoCopy(got.Object, "spec", "v"); err != nil || !there {
				t.Errorf("Thing %d: the spec is %v", n.Load(), got.Object["spec"])
			}
		}
	}()
	f()
	before := n.Load()
	cluster.Eventually(t, cluster.Patience, "a Thing afterwards", func(context.Context) error {
		if n.Load() == before {
			return errors.New("there is none")
		}
		return nil
	})
	stop()
	<-done
	t.Logf("%d Things", n.Load())
}

// owned says that the policy goes with its mutator, and that one writer has written it
// once.
func (g *movers) owned(t *testing.T) {
	t.Helper()
	owner, err := g.Dynamic.Resource(schema.GroupVersionResource{Group: "mutations.gatekeeper.sh", Version: "v1", Resource: "assign"}).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := []metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: "Assign", Name: "a", UID: owner.GetUID()}}
	for _, r := range g.resources() {
		obj, err := g.Dynamic.Resource(r).Get(t.Context(), "assign-a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, obj.GetOwnerReferences()); d != "" {
			t.Errorf("%s: owners: %s", r.Resource, d)
		}
		if obj.GetGeneration() != 1 {
			t.Errorf("%s: generation %d", r.Resource, obj.GetGeneration())
		}
		for _, f := range obj.GetManagedFields() {
			if f.Subresource == "" && (f.Manager != "mapd-native" || f.Operation != metav1.ManagedFieldsOperationApply) {
				t.Errorf("%s: fields of %s by %s", r.Resource, f.Manager, f.Operation)
			}
		}
	}
}

// TestNativeLive has `mapd migrate gatekeeper --live` keep the policies of a cluster
// in which there is no mapd.
func TestNativeLive(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Native: true})
	defineGatekeeper(t, c)
	g := &movers{&gatekeeperInstall{&cluster.Mapd{Cluster: c}}, api.NativeGroup}
	g.Apply(t, things)
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	live := func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, cluster.Binary(t), "migrate", "gatekeeper", "--live", "--kubeconfig", c.Kubeconfig(t, c.Config, ""))
		cmd.Stdout, cmd.Stderr = out, out
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		return cmd
	}
	printed := func(line string) func(context.Context) error {
		return func(context.Context) error {
			text, err := os.ReadFile(out.Name())
			if err == nil && !strings.Contains(string(text), line) {
				err = fmt.Errorf("%q is not printed:\n%s", line, text)
			}
			return err
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	first := live(ctx)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	g.Apply(t, assign("a", "spec.v", "1"))
	g.specs(t, printed("Assign/a: native, by the policy assign-a of admissionregistration.k8s.io\n"), "{v: 1}")
	g.owned(t)
	g.Apply(t, assign("a", "spec.w", "2")+"---"+assign("b", "spec.x", "3")+"---"+prune)
	g.specs(t, printed("ModifySet/prune: stays, differs: T21: "), "{w: 2, x: 3}")
	g.delete(t, "assign/b")
	g.keeps(t, "assign-a")
	cluster.Eventually(t, cluster.Patience, "b is gone", printed("Assign/b: gone\n"))
	stop()
	if err := first.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("after an interrupt: %v", err)
	}
	g.keeps(t, "assign-a")
	for _, r := range g.resources() {
		list, err := g.Dynamic.Resource(r).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("%s: %d are left, %v", r.Resource, len(list.Items), err)
		}
	}

	// Not beside a mapd that has the mutators.
	g.Apply(t, `
apiVersion: v1
kind: Namespace
metadata: {name: mapd-system}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: mapd-gatekeeper, namespace: mapd-system}
data: {mode: native}
`)
	var exit *exec.ExitError
	if err := live(t.Context()).Run(); !errors.As(err, &exit) || exit.ExitCode() != 2 {
		t.Errorf("beside a mapd: %v, want exit code 2", err)
	}
	if err := printed("--legacy=native (ConfigMap mapd-system/mapd-gatekeeper)")(t.Context()); err != nil {
		t.Error(err)
	}
}

// prune is a mutator that no policy does exactly.
const prune = `
apiVersion: mutations.gatekeeper.sh/v1
kind: ModifySet
metadata: {name: prune}
spec:
  applyTo: [{groups: [example.com], versions: [v1], kinds: [Thing]}]
  location: spec.deep.list
  parameters: {operation: prune, values: {fromList: [x]}}
`
