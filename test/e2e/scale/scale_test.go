//go:build e2e

package scale

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/test/e2e/cluster"
	"github.com/mapd-project/mapd/test/e2e/scale/result"
	"github.com/mapd-project/mapd/test/load"
)

var (
	nodes       = flag.Int("nodes", 0, "nodes of the cluster; without it TestScale is skipped")
	podCount    = flag.Int("pods", 2000, "Pods that the cluster begins with")
	policies    = flag.Int("policies", 150, "policies")
	podPolicies = flag.Int("pod-policies", 40, "how many of the policies are for Pods")
	replicas    = flag.Int("replicas", 2, "replicas of mapd")
	apiServers  = flag.Int("apiservers", 1, "API servers")
	duration    = flag.Duration("duration", 10*time.Minute, "how long all of it may take, starting and checking included")
	writes      = flag.Int("writes", 20, "writes a second of the program's own")
	rollouts    = flag.Int("rollouts", 0, "rollouts of a Deployment a minute; 0: one for 5,000 Pods, and at least 2")
	replaced    = flag.Int("replaced", 1000, "policies that are replaced at once")
	lease       = flag.Int("lease", 40, "seconds that the Lease of a node holds; it is renewed after a quarter of that")
	program     = flag.String("mapd", "", "the program mapd; it is built if this is empty")
	out         = flag.String("out", "", "directory for the raw data, the tables and the picture")
)

func TestMain(m *testing.M) { os.Exit(cluster.Main(m)) }

// tenants is how many teams the cluster has, a namespace each.
const tenants = 20

// A world is the cluster and all that is done to it.
type world struct {
	*cluster.Mapd
	data    *result.Writer
	end     time.Time // nothing new is begun after it
	mix     load.Mix
	expect  *expectation
	sender  sender
	workers []*cluster.Process // kube-controller-manager, kube-scheduler, kwok, an audit

	mu sync.Mutex
	// acting is since when all of what is written has to be as the policies say; zero: it
	// need not be.
	acting time.Time
	notes  int
	failed []string // what TestScale fails for at its end

	running sync.WaitGroup // what goes on beside the phases
}

// reserve is how much of the time the last check may take.
const reserve = 20 * time.Second

func TestScale(t *testing.T) {
	if *nodes <= 0 {
		t.Skip("there is no -nodes: make scale-cluster runs it")
	}
	if *rollouts == 0 {
		*rollouts = max(2, *podCount/5000)
	}
	var raw bytes.Buffer
	w := &world{
		data: result.NewWriter(&raw), end: time.Now().Add(*duration - reserve),
		mix: load.Mix{Group: api.OwnGroup, Policies: *policies, Pods: *podPolicies, Tenants: tenants},
	}
	w.data.Add(result.Line{Run: w.describe()})
	var once sync.Once
	finish := func() {
		once.Do(func() {
			if err := w.data.Close(); err != nil {
				t.Error(err)
			}
			publish(t, raw.Bytes())
		})
	}
	defer finish()
	// A part that waits for ever must not take what was measured with it.
	watchdog := time.AfterFunc(*duration+time.Minute, func() {
		w.note("it took a minute longer than it may, and was ended: the last check is missing")
		if w.expect != nil {
			w.expect.report(t, w)
		}
		finish()
		os.Exit(1)
	})
	defer watchdog.Stop()

	w.start(t)
	ctx, cancel := context.WithCancel(t.Context())
	stop := func() { cancel(); w.running.Wait() }
	defer stop()
	w.running.Go(func() { w.sample(ctx) })
	s := newStream(w)
	w.running.Go(func() { s.run(ctx) })
	w.running.Go(func() { w.rollOut(ctx) })
	w.running.Go(func() { w.drain(ctx) })
	w.running.Go(func() { w.checkOthers(ctx) })

	// What is left is for the phases, most of it for the faults.
	left := time.Until(w.end)
	if left < 20*time.Second {
		t.Fatalf("%s of -duration are left after the start; give it more", left.Round(time.Second))
	}
	w.phase(ctx, result.Without, left*12/100)

	t.Run("native", func(t *testing.T) {
		native := w.mix
		native.Group = api.NativeGroup
		w.put(t, native.Objects())
		defer w.removeAll(t, api.NativeGroup)
		w.awaitActing(t, true, left/4)
		w.act(true)
		defer w.act(false)
		w.phase(ctx, result.Native, left*12/100)
	})
	t.Run("mapd", func(t *testing.T) {
		w.put(t, w.mix.Objects())
		w.awaitActing(t, true, left/4)
		w.act(true)
		w.data.Add(result.Line{T: w.now(), Phase: result.With})
		fmt.Fprintf(os.Stderr, "%.1f s: %s\n", w.now(), result.With)
		clocks, still := context.WithTimeout(ctx, min(left*20/100, time.Until(w.end)/3))
		defer still()
		w.clock(clocks, t)
	})
	w.data.Add(result.Line{T: w.now(), Phase: result.Faults})
	w.running.Go(func() { w.audit(ctx, t) })
	w.faults(ctx, t)
	w.data.Add(result.Line{T: w.now(), Phase: result.End})
	stop()
	s.finish(t)
	w.checkLast(context.WithoutCancel(ctx))
	for _, text := range w.failed {
		t.Error(text)
	}
	w.expect.report(t, w)
}

func (w *world) describe() *result.Run {
	r := &result.Run{
		Time: time.Now(), Nodes: *nodes, Pods: *podCount, Policies: *policies, PodPolicies: *podPolicies, Replicas: *replicas, APIServers: *apiServers,
		Writes: *writes, Rollouts: *rollouts, Replaced: *replaced, Lease: *lease, Duration: *duration,
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		r.Load, _, _ = strings.Cut(string(text), " ")
	}
	if commit, err := exec.Command("git", "describe", "--always", "--dirty").Output(); err == nil {
		r.Commit = strings.TrimSpace(string(commit))
	}
	model := runtime.GOARCH
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	r.Machine = fmt.Sprintf("%d CPUs of %s, %s", runtime.NumCPU(), model, runtime.Version())
	return r
}

// publish prints the tables and writes the files.
func publish(t *testing.T, raw []byte) {
	lines, err := result.Read(bytes.NewReader(raw))
	if err != nil {
		t.Error(err)
		return
	}
	summary, err := result.Summarize(lines)
	if err != nil {
		t.Error(err)
		return
	}
	var text bytes.Buffer
	_ = summary.Print(&text) // into memory
	fmt.Printf("\n%s\n", &text)
	if *out == "" {
		return
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		t.Error(err)
		return
	}
	for name, data := range map[string][]byte{"run.jsonl.gz": raw, "summary.md": text.Bytes(), "picture.svg": summary.SVG()} {
		if err := os.WriteFile(filepath.Join(*out, name), data, 0o644); err != nil {
			t.Error(err)
		}
	}
}

func (w *world) now() float64 { return w.data.At(time.Now()) }

// note writes down what did not go as it should have; the first of them are printed, too.
func (w *world) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.mu.Lock()
	w.notes++
	n := w.notes
	w.mu.Unlock()
	if n > 100 {
		return
	}
	w.data.Add(result.Line{T: w.now(), Note: fmt.Sprintf("%.500s", text)})
	fmt.Fprintf(os.Stderr, "%.1f s: %.500s\n", w.now(), text)
}

// fail is note for what the test fails for.
func (w *world) fail(format string, args ...any) {
	w.note(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = append(w.failed, fmt.Sprintf("%.500s", fmt.Sprintf(format, args...)))
}

// phase begins a phase and waits until it is over.
func (w *world) phase(ctx context.Context, name string, d time.Duration) {
	w.data.Add(result.Line{T: w.now(), Phase: name})
	fmt.Fprintf(os.Stderr, "%.1f s: %s, for %s\n", w.now(), name, d.Round(time.Second))
	pause(ctx, d)
	w.data.Add(result.Line{T: w.now(), Phase: result.Between})
}

// pause waits for a time that is part of what is measured.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// act says whether what is written from now on has to be as the policies say.
func (w *world) act(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.acting = (time.Time{}); on {
		w.acting = time.Now()
	}
}

// actsAt says whether a write that was sent at a moment has to be as the policies say.
func (w *world) actsAt(sent time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.acting.IsZero() && !sent.Before(w.acting)
}

// start starts the servers, fills the cluster, and starts who works in it.
func (w *world) start(t *testing.T) {
	t.Helper()
	c := cluster.Start(t, cluster.Options{Native: true, Flags: []string{"--shutdown-watch-termination-grace-period=1s"}})
	configs := []*rest.Config{c.Config}
	for range *apiServers - 1 {
		configs = append(configs, c.AddAPIServer(t))
	}
	w.sender = newSender(t, configs)
	w.Mapd = cluster.Install(t, c, cluster.InstallOptions{Replicas: *replicas, CutAPI: true, Program: *program, Flags: []string{"--webhook-timeout=5s"}})
	w.put(t, w.mix.Context())
	w.expect = newExpectation(t, w.mix)
	w.fill(t)
	fmt.Fprintf(os.Stderr, "%.1f s: the cluster is filled\n", w.now())

	kubeconfig := w.Kubeconfig(t, c.Config, "")
	w.work(t, "kube-controller-manager", "--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000",
		"--controllers=deployment-controller,replicaset-controller,job-controller,cronjob-controller,garbage-collector-controller,ttl-after-finished-controller")
	w.work(t, "kube-scheduler", "--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000")
	stages := build(t, "stages")
	w.work(t, "kwok", "--kubeconfig="+kubeconfig, "--config="+filepath.Join(stages, "node", "fast", "node-initialize.yaml"),
		"--config="+filepath.Join(stages, "pod", "fast", "pod-ready.yaml"), "--config="+filepath.Join(stages, "pod", "fast", "pod-complete.yaml"),
		"--config="+filepath.Join(stages, "pod", "fast", "pod-delete.yaml"),
		"--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake", fmt.Sprintf("--node-lease-duration-seconds=%d", *lease),
		"--cidr=10.128.0.0/9", "--server-address=127.0.0.1:"+fmt.Sprint(cluster.FreePort(t)))
	if err := w.awaitWorking(t.Context()); err != nil {
		t.Errorf("nothing is rolled out: %v", err)
		w.note("nothing is rolled out: %v", err)
		return
	}
	fmt.Fprintf(os.Stderr, "%.1f s: controllers, scheduler and KWOK work\n", w.now())
}

// work starts a program of build.sh.
func (w *world) work(t *testing.T, name string, args ...string) {
	t.Helper()
	p := w.Process(t, name, build(t, name), args...)
	p.Start(t)
	w.workers = append(w.workers, p)
}

// build returns where a program of build.sh is.
func build(t *testing.T, name string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(cluster.Root(t), "test", "e2e", "scale", "build.sh"), name)
	cmd.Stderr = os.Stderr // tells what takes so long
	path, err := cmd.Output()
	if err != nil {
		t.Fatalf("test/e2e/scale/build.sh %s: %v", name, err)
	}
	return strings.TrimSpace(string(path))
}

// sampleEvery is the time between two looks at what processes use.
const sampleEvery = 2 * time.Second

// sample writes down what each process uses.
func (w *world) sample(ctx context.Context) {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	flush := 0
	for {
		w.use("this program", os.Getpid())
		w.mu.Lock()
		workers := append([]*cluster.Process{w.Etcd, w.APIServer}, w.workers...)
		w.mu.Unlock()
		for _, p := range append(workers, w.Added...) {
			w.use(p.Name, p.PID())
		}
		for _, r := range w.Replicas() {
			w.use(r.Name, r.PID())
		}
		if flush++; flush%5 == 0 {
			w.data.Flush()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *world) use(who string, pid int) {
	if pid == 0 {
		return
	}
	// One that has just ended has used nothing since.
	if u, err := load.ReadUsage(pid); err == nil {
		w.data.Add(result.Line{T: w.now(), Use: &result.Use{Who: who, PID: pid, CPU: u.CPU.Seconds(), MiB: float64(cmp.Or(u.RSS, 1)>>10) / 1024}})
	}
}
