//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/breaker"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// stamped is an idempotent policy of ConfigMaps, with two bindings.
func stamped(group, name string) string {
	return fmt.Sprintf(`
apiVersion: %[1]s/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[2]s, labels: {team: a}}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"%[2]s": "made"}}}'}
---
apiVersion: %[1]s/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[2]s}
spec: {policyName: %[2]s, matchResources: {objectSelector: {matchLabels: {of: %[2]s}}}}
`, group, name)
}

// promotion is a cluster of two API servers and two replicas, on which policies are moved.
type promotion struct {
	*cluster.Mapd
	second *rest.Config
	config string // kubeconfig
}

// TestPromote moves policies between mapd and two API servers that run policies.
func TestPromote(t *testing.T) {
	t.Parallel()
	p := newPromotion(t)
	t.Run("under writes", p.underWrites)
	t.Run("documented", p.documented)
	t.Run("refused", p.refused)
	t.Run("a difference", p.difference)
}

// TestPromoteKilled kills mapd promote at its steps and replicas that it asks, and leaves it
// without requests.
func TestPromoteKilled(t *testing.T) {
	t.Parallel()
	p := newPromotion(t)
	t.Run("killed", p.killed)
	t.Run("quiet", p.quiet)
}

func newPromotion(t *testing.T) *promotion {
	t.Helper()
	address := machineAddress(t)
	c := cluster.Start(t, cluster.Options{Native: true, Flags: []string{"--endpoint-reconciler-type=none"}})
	p := &promotion{Mapd: cluster.Install(t, c, cluster.InstallOptions{Replicas: 2})}
	p.second = c.AddAPIServer(t)
	p.config = p.Kubeconfig(t, p.Config, "")
	for i, config := range []*rest.Config{p.Config, p.second} {
		at, err := url.Parse(config.Host)
		if err != nil {
			t.Fatal(err)
		}
		port := forward(t, address, at.Host)
		_, err = p.Kubernetes.DiscoveryV1().EndpointSlices("default").Create(t.Context(), &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: fmt.Sprint("kubernetes-", i), Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
			Ports:       []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(port))}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// machineAddress returns an address of this machine that may stand in an EndpointSlice.
func machineAddress(t *testing.T) string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() && !ip.IP.IsLinkLocalUnicast() {
			return ip.IP.String()
		}
	}
	t.Fatal("this machine has no IPv4 address but loopback")
	return ""
}

// forward has a port at an address of this machine lead to a server on loopback.
func forward(t *testing.T, address, to string) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					way[0].Close()
					way[1].Close()
				}()
			}
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// command returns mapd promote with the replicas that are there now.
func (p *promotion) command(t *testing.T, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	args = append([]string{"promote", "--kubeconfig=" + p.config, "--canary-time=2s", "--settle=1s"}, args...)
	for _, r := range p.Replicas() {
		args = append(args, "--replica=https://"+r.Addr)
	}
	cmd := exec.Command(cluster.Binary(t), args...)
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	t.Cleanup(func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
		}
	})
	return cmd, out
}

// run runs mapd promote, which has to end with a code.
func (p *promotion) run(t *testing.T, code int, args ...string) string {
	t.Helper()
	cmd, out := p.command(t, args...)
	err := cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("mapd promote %s: exit code %d, want %d: %v\n%s", strings.Join(args, " "), got, code, err, out)
	}
	return out.String()
}

// has waits until a group has a policy and its binding, and the other has neither.
func (p *promotion) has(t *testing.T, group, name string) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, name+" to be in "+group, func(ctx context.Context) error {
		for _, r := range []struct {
			group string
			want  bool
		}{{api.OwnGroup, group == api.OwnGroup}, {api.NativeGroup, group == api.NativeGroup}} {
			for _, gvr := range []string{api.PolicyResource, api.BindingResource} {
				resource := api.OwnPolicies
				resource.Group, resource.Resource = r.group, gvr
				u, err := p.Dynamic.Resource(resource).Get(ctx, name, metav1.GetOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					return err
				}
				if (err == nil) != r.want {
					return fmt.Errorf("%s of %s: %v", gvr, r.group, err)
				}
				if r.group == api.OwnGroup && err == nil && (u.GetAnnotations()["mapd.dev/promotion"] != "" || gvr == api.PolicyResource && u.GetLabels()["team"] != "a") {
					return fmt.Errorf("%s has annotations %v, labels %v", gvr, u.GetAnnotations(), u.GetLabels())
				}
			}
		}
		return nil
	})
}

// writes creates ConfigMaps, half through each API server, until stop is called. What is
// stored without the policy's label is an error.
type writes struct {
	name                string
	begun               time.Time
	took                time.Duration // set by stop
	count, bad, refused atomic.Int64
	stop                func()
}

func (p *promotion) write(t *testing.T, name string, perSecond int) *writes {
	t.Helper()
	w := &writes{name: name, begun: time.Now()}
	due, stopped := make(chan struct{}, perSecond), make(chan struct{})
	var pace, all sync.WaitGroup
	pace.Go(func() {
		defer close(due)
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for {
			select {
			case <-stopped:
				return
			case <-tick.C:
			}
			select {
			case due <- struct{}{}:
			default: // the writers are a second late
			}
		}
	})
	clients := []kubernetes.Interface{p.Kubernetes, p.Client(t, p.second)}
	for i := range 8 {
		all.Go(func() {
			for n := i; ; n++ {
				if _, more := <-due; !more {
					return
				}
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-", Labels: map[string]string{"of": name}}}
				got, err := clients[n%2].CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{})
				switch {
				case t.Context().Err() != nil:
					return
				case err != nil:
					// A killed replica refuses: the policy has failurePolicy Fail. Nothing is stored.
					if w.refused.Add(1); !apierrors.IsInternalError(err) {
						t.Errorf("%s: %v", name, err)
					}
				default:
					w.count.Add(1)
					if got.Labels[name] != "made" {
						w.bad.Add(1)
						t.Errorf("%s: a write of %s was stored without the label", name, time.Now().Format(time.TimeOnly))
					}
				}
			}
		})
	}
	var once sync.Once
	w.stop = func() {
		once.Do(func() {
			close(stopped)
			pace.Wait()
			all.Wait()
			w.took = time.Since(w.begun)
		})
	}
	t.Cleanup(w.stop)
	return w
}

// stored reads all objects that were written, and compares each with what the policy alone
// makes of it: the label is added, and nothing else.
func (w *writes) stored(t *testing.T, p *promotion) {
	t.Helper()
	count := 0
	want := map[string]string{"of": w.name, w.name: "made"}
	for token := ""; ; {
		list, err := p.Kubernetes.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{LabelSelector: "of=" + w.name, Limit: 500, Continue: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, cm := range list.Items {
			count++
			if !maps.Equal(cm.Labels, want) || len(cm.Annotations)+len(cm.Data)+len(cm.BinaryData)+len(cm.OwnerReferences)+len(cm.Finalizers) > 0 || cm.Immutable != nil {
				t.Errorf("ConfigMap %s is not what the policy alone makes: labels %v, annotations %v, data %v", cm.Name, cm.Labels, cm.Annotations, cm.Data)
			}
		}
		if token = list.Continue; token == "" {
			break
		}
	}
	if count != int(w.count.Load()) {
		t.Errorf("%d ConfigMaps are stored, and %d writes were answered", count, w.count.Load())
	}
	t.Logf("%d objects were stored in %v, %.0f a second; each is as the policy alone makes it", count, w.took.Round(time.Millisecond), float64(count)/w.took.Seconds())
}

// metric adds up a metric of the two API servers, where a line has all parts.
func (p *promotion) metric(t *testing.T, name string, parts ...string) (n int) {
	t.Helper()
	for _, config := range []*rest.Config{p.Config, p.second} {
		text, err := p.Client(t, config).Discovery().RESTClient().Get().AbsPath("/metrics").Do(t.Context()).Raw()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, name+"{") || slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
				continue
			}
			v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " ")+1:]), 64)
			if err != nil {
				t.Fatal(err)
			}
			n += int(v)
		}
	}
	return n
}

// native returns how often the API servers ran a policy.
func (p *promotion) native(t *testing.T, name string) int {
	t.Helper()
	return p.metric(t, "apiserver_mutating_admission_policy_check_total", `policy="`+name+`"`)
}

// called returns how often the API servers called mapd for enforced policies and got an answer.
func (p *promotion) called(t *testing.T) int {
	t.Helper()
	return p.metric(t, "apiserver_admission_webhook_admission_duration_seconds_count", `name="fail.never.mapd.dev"`, `rejected="false"`)
}

// underWrites promotes and demotes while 100 objects a second are written, and while mapd's
// leader is killed.
func (p *promotion) underWrites(t *testing.T) {
	const name = "stamp"
	p.Apply(t, stamped(api.OwnGroup, name))
	p.acts(t, name)
	before := p.called(t)
	w := p.write(t, name, 120) // of which a busy machine answers 100
	for _, move := range [][]string{{"--canary-requests=100", name}, {"--demote", name}} {
		cmd, out := p.command(t, move...)
		victim := holder(t, p.Mapd)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		// In the middle: when both have it.
		cluster.Eventually(t, cluster.Patience, "both to have the policy", func(ctx context.Context) error {
			for _, r := range []struct{ group string }{{api.OwnGroup}, {api.NativeGroup}} {
				resource := api.OwnBindings
				resource.Group = r.group
				if _, err := p.Dynamic.Resource(resource).Get(ctx, name, metav1.GetOptions{}); err != nil {
					return err
				}
			}
			return nil
		})
		victim.Kill()
		victim.Start(t) // as a kubelet does; its port is the same
		t.Logf("killed the leader, replica %s, at %s", victim.Addr, time.Now().Format(time.TimeOnly))
		if err := <-ended; err != nil {
			t.Fatalf("mapd promote %v: %v\n%s", move, err, out)
		}
		t.Logf("mapd promote %s:\n%s", strings.Join(move, " "), out)
		group := api.NativeGroup
		if move[0] == "--demote" {
			group = api.OwnGroup
		}
		p.has(t, group, name)
	}
	w.stop()
	w.stored(t, p)
	natives, calls, total, refused := p.native(t, name), p.called(t)-before, int(w.count.Load()), int(w.refused.Load())
	t.Logf("%d objects were stored, %d of them without the label; %d writes were refused while a replica was away; API servers ran the policy on %d requests, mapd on %d: both on at least %d of those stored",
		total, w.bad.Load(), refused, natives, calls, natives+calls-total-refused)
	if total < 200 || natives == 0 || calls == 0 {
		t.Errorf("nothing is shown by %d objects, %d by API servers and %d by mapd", total, natives, calls)
	}
	p.delete(t, name)
}

// acts waits until a policy acts through both API servers.
func (p *promotion) acts(t *testing.T, name string) {
	t.Helper()
	for _, client := range []kubernetes.Interface{p.Kubernetes, p.Client(t, p.second)} {
		cluster.Eventually(t, cluster.Patience, name+" to act", func(ctx context.Context) error {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-", Labels: map[string]string{"of": name}}}
			got, err := client.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil && got.Labels[name] != "made" {
				err = errors.New("it does not")
			}
			return err
		})
	}
}

// delete deletes a policy and its binding of mapd.
func (p *promotion) delete(t *testing.T, name string) {
	t.Helper()
	for _, r := range []string{api.BindingResource, api.PolicyResource} {
		resource := api.OwnPolicies
		resource.Resource = r
		if err := p.Dynamic.Resource(resource).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// killed kills mapd promote whenever it has taken a step, and runs it again.
func (p *promotion) killed(t *testing.T) {
	const name = "again"
	p.Apply(t, stamped(api.OwnGroup, name))
	p.acts(t, name)
	w := p.write(t, name, 40)
	defer w.stop()
	resource := api.OwnPolicies
	record := func(ctx context.Context) string {
		u, err := p.Dynamic.Resource(resource).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return ""
		}
		return u.GetAnnotations()["mapd.dev/promotion"]
	}
	native := func(binding bool) func(ctx context.Context) bool {
		return func(ctx context.Context) bool {
			r := api.NativePolicies
			if binding {
				r = api.NativeBindings
			}
			_, err := p.Dynamic.Resource(r).Get(ctx, name, metav1.GetOptions{})
			return err == nil
		}
	}
	kill := func(what string, reached func(ctx context.Context) bool, args ...string) {
		t.Helper()
		cmd, out := p.command(t, args...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		cluster.Eventually(t, cluster.Patience, what, func(ctx context.Context) error {
			if reached(ctx) {
				return nil
			}
			select {
			case <-ended:
				t.Fatalf("mapd promote ended before %s:\n%s", what, out)
			default:
			}
			return errors.New("not yet")
		})
		_ = cmd.Process.Kill()
		<-ended
		t.Logf("killed after %s", what)
	}
	more := "--canary-requests=100000" // so that it does not end before it is killed
	kill("the native binding is written", native(true), more, name)
	kill("mapd's policy is in shadow", func(ctx context.Context) bool { return strings.Contains(record(ctx), `"compare"`) }, more, name)
	p.run(t, 0, "--canary-requests=5", name)
	p.has(t, api.NativeGroup, name)
	kill("mapd's policy is back", func(ctx context.Context) bool { return record(ctx) != "" }, "--demote", name)
	// Of two minds: it was to be demoted, and is promoted again.
	p.run(t, 0, name)
	p.has(t, api.NativeGroup, name)
	p.run(t, 0, "--demote", "--all")
	p.has(t, api.OwnGroup, name)

	// A replica that cannot be asked stops a promotion, which goes on when it is back.
	kill("mapd's policy is in shadow again", func(ctx context.Context) bool { return strings.Contains(record(ctx), `"compare"`) }, more, name)
	lost := p.Replicas()[0]
	lost.Kill()
	out := p.run(t, 1, name)
	for _, part := range []string{"1 of 2 replicas of mapd cannot be asked", "replica https://" + lost.Addr + ": ", "delete the Pod of a replica that does not come back"} {
		if !strings.Contains(out, part) {
			t.Errorf("it does not say %q:\n%s", part, out)
		}
	}
	lost.Start(t)
	p.WaitReady(t)
	p.run(t, 0, "--canary-requests=5", name)
	p.has(t, api.NativeGroup, name)
	p.run(t, 0, "--demote", name)
	p.has(t, api.OwnGroup, name)
	w.stop()
	w.stored(t, p)
	p.delete(t, name)
}

// quiet: if no request comes, a canary proves nothing.
func (p *promotion) quiet(t *testing.T) {
	const name = "quiet"
	p.Apply(t, stamped(api.OwnGroup, name))
	p.acts(t, name)
	out := p.run(t, 1, name)
	if !strings.Contains(out, "quiet went back, mapd runs it: the two sides were compared on 0 requests within 2s, and at least 1 have to agree") {
		t.Errorf("it says:\n%s", out)
	}
	p.has(t, api.OwnGroup, name)
	if out := p.run(t, 0, "--canary-least=0", name); !strings.Contains(out, "quiet is there: the API servers run it; no request was compared in this run") {
		t.Errorf("it says:\n%s", out)
	}
	p.has(t, api.NativeGroup, name)
	p.run(t, 0, "--demote", name)
	p.delete(t, name)
}

// documented runs the commands of docs/operate/promote.md.
func (p *promotion) documented(t *testing.T) {
	const name = "team-labels"
	p.Apply(t, stamped(api.OwnGroup, name))
	p.acts(t, name)
	w := p.write(t, name, 20) // for the canary
	for _, c := range commands(t, "docs/operate/promote.md") {
		t.Log(c)
		switch args := strings.Fields(c); {
		case strings.HasPrefix(c, "mapd promote "):
			out := p.run(t, 0, args[2:]...)
			switch {
			case slices.Contains(args, "--dry-run"):
				if !strings.Contains(out, "  step 3  set mapd's policy to shadow and compare") {
					t.Errorf("%s prints\n%s", c, out)
				}
				p.has(t, api.OwnGroup, name)
			case slices.Contains(args, "--demote"):
				p.has(t, api.OwnGroup, name)
			default:
				p.has(t, api.NativeGroup, name)
			}
		case args[0] == "kubectl":
			if _, err := p.Kubectl(t, nil, args[1:]...); err != nil {
				t.Errorf("%s: %v", c, err)
			}
		default:
			t.Errorf("nobody runs %s", c)
		}
	}
	w.stop()
	p.delete(t, name)
}

// refused: a policy that changes again what it has made is not moved, unless a window is
// allowed; one of somebody else's name is never.
func (p *promotion) refused(t *testing.T) {
	const name = "grows"
	text := strings.Replace(stamped(api.OwnGroup, name), "patchType: ApplyConfiguration", "patchType: JSONPatch", 1)
	text = strings.Replace(text, `applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"grows": "made"}}}'}`,
		`jsonPatch: {expression: '[JSONPatch{op: "add", path: "/metadata/labels/grows", value: has(object.metadata.labels.grows) ? object.metadata.labels.grows + "-made" : "made"}]'}`, 1)
	p.Apply(t, text)
	p.acts(t, name)
	if out := p.run(t, 1, name); !strings.Contains(out, "window  twice: the policy changes again what it has made") {
		t.Errorf("it says:\n%s", out)
	}
	p.has(t, api.OwnGroup, name)
	out := p.run(t, 0, "--allow-window", name)
	if !strings.Contains(out, "grows is there: the API servers run it; requests may have been mutated by both sides for ") {
		t.Errorf("it says:\n%s", out)
	}
	p.has(t, api.NativeGroup, name)
	p.run(t, 0, "--demote", "--allow-window", name)
	p.has(t, api.OwnGroup, name)
	p.delete(t, name)

	p.Apply(t, stamped(api.OwnGroup, "tripped"))
	if _, err := p.Kubectl(t, nil, "annotate", api.PolicyResource+"."+api.OwnGroup, "tripped", "mapd.dev/breaker=errors=5%"); err != nil {
		t.Fatal(err)
	}
	u, err := p.Dynamic.Resource(api.OwnPolicies).Get(t.Context(), "tripped", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	trip := breaker.Trip{Digest: breaker.DigestOf(u.Object), Reason: "half of all failed", Time: time.Now()}
	status, err := json.Marshal(map[string]any{"status": map[string]any{"breaker": trip.Object()}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Dynamic.Resource(api.OwnPolicies).Patch(t.Context(), "tripped", types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	if out := p.run(t, 1, "tripped"); !strings.Contains(out, "refuse  mode: the policy is in shadow, because its breaker tripped at ") {
		t.Errorf("it says:\n%s", out)
	}
	p.has(t, api.OwnGroup, "tripped")
	p.delete(t, "tripped")

	p.Apply(t, stamped(api.NativeGroup, "taken"))
	p.Apply(t, stamped(api.OwnGroup, "taken"))
	if out := p.run(t, 1, "taken"); !strings.Contains(out, "there is a native policy of that name that was not promoted") {
		t.Errorf("it says:\n%s", out)
	}
	p.delete(t, "taken")
	if _, err := p.Kubectl(t, []byte(stamped(api.NativeGroup, "taken")), "delete", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// difference: a server of 1.37 cannot copy a map of an object after a condition, and
// ignores the policy; mapd can, and sees in shadow that nobody did. Out of a list lint does
// not see that map.
func (p *promotion) difference(t *testing.T) {
	const name = "differs"
	p.Apply(t, fmt.Sprintf(`
apiVersion: %[1]s/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[2]s, labels: {team: a}}
spec:
  failurePolicy: Ignore
  reinvocationPolicy: Never
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  matchConditions: [{name: labels, expression: 'has(object.metadata.labels)'}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {"%[2]s": "made"}}}'}
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: "add", path: "/metadata/annotations", value: [object.metadata.labels][0]}]'}
---
apiVersion: %[1]s/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[2]s, annotations: {mapd.dev/mode: enforce}}
spec: {policyName: %[2]s, matchResources: {objectSelector: {matchLabels: {of: %[2]s}}}}
`, api.OwnGroup, name))
	p.acts(t, name)
	cmd, out := p.command(t, "--canary-requests=20", "--canary-time=1m", name)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	client := p.Kubernetes.CoreV1().ConfigMaps("default")
	for over := false; !over; {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-", Labels: map[string]string{"of": name}}}
		if _, err := client.Create(t.Context(), cm, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
			over = true
		case <-time.After(100 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("mapd promote does not end")
		}
	}
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(out.String(), "differs went back, mapd runs it: mapd would have changed") ||
		!strings.Contains(out.String(), "(docs/reference/compat.md, reflection-values)") {
		t.Errorf("exit code %d:\n%s", cmd.ProcessState.ExitCode(), out)
	}
	p.has(t, api.OwnGroup, name)
	p.acts(t, name)
	u, err := p.Dynamic.Resource(api.OwnBindings).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil || u.GetAnnotations()["mapd.dev/mode"] != "enforce" {
		t.Errorf("the binding's mode is %q, %v", u.GetAnnotations()["mapd.dev/mode"], err)
	}
	p.delete(t, name)
}
