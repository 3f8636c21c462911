//go:build e2e

package bench

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/test/bench/pods"
	"github.com/mapd-project/mapd/test/e2e/cluster"
	"github.com/mapd-project/mapd/test/load"
)

var each = flag.Duration("each", 2*time.Second, "how long a measurement takes, up to 10s; a slow one takes longer")

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// atATime is how many requests there are at a time, on one connection.
var atATime = []int{1, 4}

// minRequests are sent even if that takes longer.
const minRequests = 8

// A subject is what stands between a client and its Pod.
type subject struct {
	name  string
	group string // of the policies; "" for none
	floor string // of load.Floors; "" for none
	kind  load.Kind
	n     int // policies, or labels that the Pod comes with
	// selectors are the objectSelectors of the policies, in turns, and each makes an
	// entry of its own; without any, one entry sends all Pods.
	selectors []map[string]any
	elsewhere bool // they select another Pod
}

// acts is how many of the policies act on the Pod.
func (s subject) acts() int {
	if s.elsewhere {
		return 0
	}
	return s.n
}

// reviews is how many of them mapd gets for one creation.
func (s subject) reviews() int {
	switch {
	case s.group != api.OwnGroup || s.elsewhere:
		return 0
	case len(s.selectors) > 0:
		return len(s.selectors)
	}
	return 1
}

var subjects = []subject{
	noPolicy,
	idle,
	{name: "a webhook that allows", kind: load.Label, floor: "allow"},
	{name: "a webhook that adds a label", kind: load.Label, floor: "patch"},
	floorOfLabels,
	// Those that are compared follow each other: a machine that others use as well
	// is not the same for long.
	policies(api.NativeGroup, load.Label, 1), policies(api.OwnGroup, load.Label, 1),
	policies(api.NativeGroup, load.Label, 3), policies(api.OwnGroup, load.Label, 3),
	policies(api.NativeGroup, load.Label, 10), policies(api.OwnGroup, load.Label, 10),
	policies(api.NativeGroup, load.Label, 100), policies(api.OwnGroup, load.Label, 100),
	policies(api.NativeGroup, load.Pull, 100), policies(api.OwnGroup, load.Pull, 100),
	entries(1), entries(2), entries(4),
}

var noPolicy = subject{name: "no policy", kind: load.Label}

// idle are policies that want other Pods than the one that is created. What they cost
// it is what it costs a server to see that.
var idle = subject{
	name: "mapd, 100 labels of other Pods", group: api.OwnGroup, kind: load.Label, n: 100,
	selectors: []map[string]any{{"matchLabels": map[string]any{"app": "other"}}}, elsewhere: true,
}

// entries are four policies in n entries, each of which every Pod meets.
func entries(n int) subject {
	s := subject{name: fmt.Sprintf("mapd, 4 labels, entries: %d", n), group: api.OwnGroup, kind: load.Label, n: 4}
	for _, q := range []struct{ key, operator string }{{"app", "Exists"}, {"tier", "Exists"}, {"a", "DoesNotExist"}, {"b", "DoesNotExist"}}[:n] {
		s.selectors = append(s.selectors, map[string]any{"matchExpressions": []any{map[string]any{"key": q.key, "operator": q.operator}}})
	}
	return s
}

// floorOfLabels is what a hundred labels cost whoever puts them on: a server decodes,
// compares, validates and encodes them, and applies a patch.
var floorOfLabels = subject{name: "the same, 100 labels are there", kind: load.Label, floor: "patch", n: 100}

func policies(group string, k load.Kind, n int) subject {
	return subject{name: title(group, k, n), group: group, kind: k, n: n}
}

func title(group string, k load.Kind, n int) string {
	who := map[string]string{api.NativeGroup: "native", api.OwnGroup: "mapd"}[group]
	plural := "s"
	if n == 1 {
		plural = ""
	}
	return fmt.Sprintf("%s, %d %s%s", who, n, k.Name, plural)
}

// key is a row of the table.
type key struct {
	subject, pod string
	atATime      int
}

// figures are what a request took and used; CPU that is not known is 0.
type figures struct {
	requests        int
	latency         load.Latency
	server, replica time.Duration
	reviews         int // that mapd got for all of them
}

// cpu is that of all who were busy with a request.
func (f figures) cpu() time.Duration { return f.server + f.replica }

type bench struct {
	*cluster.Mapd
	client kubernetes.Interface
	floor  *floor
	pods   []pod
	rows   map[key]figures
}

// A pod is one that is created, the same with the labels of floorOfLabels, and one
// that the policies of idle select.
type pod struct {
	name                  string
	body, labelled, other []byte
}

// BenchmarkCreate measures all subjects, one after the other on one server.
func BenchmarkCreate(b *testing.B) {
	if *each <= 0 || *each > 10*time.Second {
		b.Fatalf("-each %s: must be more than nothing and at most 10s", *each)
	}
	c := cluster.Start(b, cluster.Options{Native: true})
	m := cluster.Install(b, c, cluster.InstallOptions{Replicas: -1, Direct: true})
	m.AddReplica(b)
	m.WaitReady(b)
	quiet := rest.CopyConfig(c.Config)
	quiet.WarningHandler = rest.NoWarnings{} // the names of ports are used twice
	x := &bench{Mapd: m, client: c.Client(b, quiet), floor: newFloor(b, c), rows: map[key]figures{}}
	fmt.Printf("\n%s, %d CPUs, %s\n", runtime.Version(), runtime.NumCPU(), runtime.GOOS+"/"+runtime.GOARCH)
	for name, object := range map[string]map[string]any{"small": pods.New(3, 0), "big": pods.New(20, 40)} {
		// What a server writes is not for a client to send.
		delete(object, "status")
		delete(object["metadata"].(map[string]any), "managedFields")
		p := pod{name: name, body: encode(b, object)}
		labels := object["metadata"].(map[string]any)["labels"].(map[string]any)
		app := labels["app"]
		labels["app"] = "other"
		p.other = encode(b, object)
		labels["app"] = app
		for i := range floorOfLabels.n {
			labels[fmt.Sprintf("l%d", i)] = "v"
		}
		p.labelled = encode(b, object)
		x.pods = append(x.pods, p)
	}
	slices.SortFunc(x.pods, func(a, b pod) int { return len(a.body) - len(b.body) })
	for _, s := range subjects {
		x.put(b, s)
		x.rest(b)
		for _, p := range x.pods {
			for _, n := range atATime {
				x.rows[key{s.name, p.name, n}] = x.measure(b, s, p, n)
			}
		}
		x.take(b, s)
	}
	x.print()
}

func encode(b *testing.B, object map[string]any) []byte {
	b.Helper()
	body, err := json.Marshal(object)
	if err != nil {
		b.Fatal(err)
	}
	return body
}

func resources(group string) []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		{Group: group, Version: "v1", Resource: "mutatingadmissionpolicies"},
		{Group: group, Version: "v1", Resource: "mutatingadmissionpolicybindings"},
	}
}

// put makes a subject act.
func (x *bench) put(b *testing.B, s subject) {
	b.Helper()
	if s.floor != "" {
		x.floor.put(b, s.floor)
		x.wait(b, s, s.n)
		return
	}
	for i := range s.n {
		for j, o := range load.Policy(s.group, s.kind, i) {
			if len(s.selectors) > 0 && j == 0 {
				if err := unstructured.SetNestedMap(o.Object, s.selectors[i%len(s.selectors)], "spec", "matchConstraints", "objectSelector"); err != nil {
					b.Fatal(err)
				}
			}
			if _, err := x.Dynamic.Resource(resources(s.group)[j]).Create(b.Context(), o, metav1.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	}
	x.wait(b, s, s.n)
}

// take ends that.
func (x *bench) take(b *testing.B, s subject) {
	b.Helper()
	if s.floor != "" {
		x.floor.take(b)
	}
	if s.group == "" {
		return
	}
	for _, r := range resources(s.group) {
		if err := x.Dynamic.Resource(r).DeleteCollection(b.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: load.PolicyLabel}); err != nil {
			b.Fatal(err)
		}
	}
	x.wait(b, s, 0)
}

// wait asks until n policies act, on the Pod that they want, and servers have their
// entries, or the floor is called.
func (x *bench) wait(b *testing.B, s subject, n int) {
	b.Helper()
	before := x.floor.calls.Load()
	cluster.Eventually(b, 2*time.Minute, fmt.Sprintf("%s, of which %d, to act", s.name, n), func(ctx context.Context) error {
		for _, p := range x.pods {
			if s.elsewhere {
				p.body = p.other
			}
			body, err := x.create(s, p).Do(ctx).Raw()
			if err != nil {
				return err
			}
			if err := s.done(body, n); err != nil {
				return err
			}
		}
		if n > 0 && s.group == api.OwnGroup {
			c, err := x.Kubernetes.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, webhookconfig.ConfigurationName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if want := max(1, len(s.selectors)); len(c.Webhooks) != want {
				return fmt.Errorf("%d entries, want %d", len(c.Webhooks), want)
			}
		}
		if s.floor != "" && x.floor.calls.Load() == before {
			return fmt.Errorf("it is not called")
		}
		return nil
	})
}

// rest waits until both processes have done what a change leaves them to do, such as
// the status of a hundred policies: half a second in which they use a tenth of a core.
func (x *bench) rest(b *testing.B) {
	b.Helper()
	since := time.Now()
	server, replica := x.usage()
	cluster.Eventually(b, 2*time.Minute, "the servers to be at rest", func(context.Context) error {
		took := time.Since(since)
		if took < 500*time.Millisecond {
			return fmt.Errorf("too early to tell")
		}
		server2, replica2 := x.usage()
		used := server2 - server + replica2 - replica
		since, server, replica = time.Now(), server2, replica2
		if used > took/10 {
			return fmt.Errorf("they used %s in %s", used, took)
		}
		return nil
	})
}

// create is kubectl create --dry-run=server.
func (x *bench) create(s subject, p pod) *rest.Request {
	body := p.body
	if s.floor != "" && s.n > 0 {
		body = p.labelled
	}
	return x.client.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Param("dryRun", "All").
		SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(body)
}

// done returns what is wrong with an answer if n policies act, or labels were there.
func (s subject) done(body []byte, n int) error {
	var pod unstructured.Unstructured
	if err := json.Unmarshal(body, &pod.Object); err != nil {
		return err
	}
	if s.floor == "patch" {
		labels := pod.GetLabels()
		if labels[load.FloorLabel] == "" {
			return fmt.Errorf("no label %s", load.FloorLabel)
		}
		delete(labels, load.FloorLabel)
		pod.SetLabels(labels)
	}
	return s.kind.Done(&pod, n)
}

// measure creates a Pod again and again. Every sixteenth answer is looked at; the
// others have to be of its length, in which neither a uid nor a time makes a
// difference: to read them all would cost more than to make them.
func (x *bench) measure(b *testing.B, s subject, p pod, parallel int) figures {
	b.Helper()
	first, err := x.create(s, p).Do(b.Context()).Raw()
	if err != nil {
		b.Fatal(err)
	}
	var (
		mu      sync.Mutex
		all     []time.Duration
		failed  error
		workers sync.WaitGroup
	)
	reviews := x.reviews(b)
	server, replica := x.usage()
	start := time.Now()
	for range parallel {
		workers.Go(func() {
			for n := 0; time.Since(start) < *each || n < minRequests/parallel; n++ {
				began := time.Now()
				body, err := x.create(s, p).Do(b.Context()).Raw()
				took := time.Since(began)
				switch {
				case err != nil:
				case n%16 == 0:
					err = s.done(body, s.acts())
				case len(body) != len(first):
					err = fmt.Errorf("an answer of %d bytes after one of %d", len(body), len(first))
				}
				mu.Lock()
				all = append(all, took)
				if err != nil {
					failed = err
				}
				stop := failed != nil
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	workers.Wait()
	server2, replica2 := x.usage()
	if failed != nil {
		b.Fatalf("%s, %s Pod: %v", s.name, p.name, failed)
	}
	reviews = x.reviews(b) - reviews
	if want := len(all) * s.reviews(); reviews != want {
		b.Fatalf("%s, %s Pod: mapd got %d reviews of %d creations, want %d", s.name, p.name, reviews, len(all), want)
	}
	n := time.Duration(len(all))
	return figures{len(all), load.Summarize(all), (server2 - server) / n, (replica2 - replica) / n, reviews}
}

// reviews is how many of them mapd has answered.
func (x *bench) reviews(b *testing.B) int {
	b.Helper()
	_, page, err := x.Replicas()[0].Get(b.Context(), "/metrics")
	if err != nil {
		b.Fatal(err)
	}
	sum := 0
	for _, m := range answered.FindAllStringSubmatch(page, -1) {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += int(n)
	}
	return sum
}

var answered = regexp.MustCompile(`(?m)^mapd_http_requests_total\{.*path="/mutate[^"]*".*\} (\S+)$`)

// usage is the CPU of the API server and of mapd so far; 0 if it is not known.
func (x *bench) usage() (server, replica time.Duration) {
	s, err := load.ReadUsage(x.APIServer.PID())
	if err != nil {
		return 0, 0
	}
	r, err := load.ReadUsage(x.Replicas()[0].PID())
	if err != nil {
		return 0, 0
	}
	return s.CPU, r.CPU
}
