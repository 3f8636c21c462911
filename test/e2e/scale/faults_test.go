//go:build e2e

package scale

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/test/bench/pods"
	"github.com/mapd-project/mapd/test/e2e/cluster"
	"github.com/mapd-project/mapd/test/e2e/scale/result"
	"github.com/mapd-project/mapd/test/load"
)

// faults breaks one thing after the other until the time is up, with pauses of equal
// length, in which one policy is changed.
func (w *world) faults(ctx context.Context, t *testing.T) {
	server := strings.TrimPrefix(w.Config.Host, "https://")
	all := []struct {
		what string
		make func(t *testing.T)
	}{
		// Its end comes minutes later: API servers get the new authority first.
		{"rotation of certificate and authority asked for", func(t *testing.T) { w.rotate(ctx, t) }},
		{"a replica killed, started again after 5 s", func(t *testing.T) {
			victim := w.Replicas()[0]
			victim.Kill()
			pause(ctx, 5*time.Second)
			victim.Start(t)
			w.WaitReady(t)
		}},
		{"a replica hung for 12 s", func(t *testing.T) {
			victim := w.Replicas()[len(w.Replicas())-1]
			victim.Pause()
			defer victim.Continue()
			pause(ctx, 12*time.Second)
		}},
		{"all connections of API servers to replicas reset", func(*testing.T) { w.Proxy.Cut() }},
		{"replicas cut off from the API server for 15 s", func(*testing.T) {
			w.API.Targets()
			w.API.Cut()
			defer w.API.Targets(server)
			pause(ctx, 15*time.Second)
		}},
		{"an API server restarted", func(t *testing.T) { w.RestartAPIServer(t) }},
		{fmt.Sprintf("%d policies more at once", *replaced), func(t *testing.T) { w.stamps(ctx, t, "first") }},
		{fmt.Sprintf("%d policies replaced at once", *replaced), func(t *testing.T) { w.stamps(ctx, t, "second") }},
	}
	for i, f := range all {
		if time.Until(w.end) < 5*time.Second {
			w.note("there was no time for: %s", f.what)
			continue
		}
		begin := time.Now()
		fmt.Fprintf(os.Stderr, "%.1f s: %s\n", w.now(), f.what)
		t.Run(strconv.Itoa(i), f.make)
		w.data.Add(result.Line{T: w.data.At(begin), Fault: &result.Span{What: f.what, Seconds: time.Since(begin).Seconds()}})
		rest, still := context.WithTimeout(ctx, time.Until(w.end)/time.Duration(len(all)-i))
		w.clock(rest, t)
		still()
	}
}

// rotate asks for another authority, and writes down when all replicas serve what it has
// signed.
func (w *world) rotate(ctx context.Context, t *testing.T) {
	before := map[string][]byte{}
	served := func(r *cluster.Replica) ([]byte, error) {
		// A replica that hangs takes a connection and does not answer.
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 2 * time.Second}, "tcp", r.Addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Raw, nil
	}
	for _, r := range w.Replicas() {
		var err error
		if before[r.Name], err = served(r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Kubernetes.CoreV1().Secrets(cluster.Namespace).Patch(t.Context(), "mapd-tls", types.MergePatchType,
		[]byte(`{"metadata": {"annotations": {"mapd.dev/rotate": "now"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	other := func() error {
		for _, r := range w.Replicas() {
			switch now, err := served(r); {
			case err != nil:
				return err
			case bytes.Equal(now, before[r.Name]):
				return fmt.Errorf("%s serves the one that it had", r.Name)
			}
		}
		return nil
	}
	w.running.Go(func() {
		for err := other(); err != nil; err = other() {
			if pause(ctx, time.Second); ctx.Err() != nil {
				w.note("there was no time for other certificates: %v", err)
				return
			}
		}
		w.data.Add(result.Line{T: w.now(), Fault: &result.Span{What: "all replicas serve certificates of the new authority"}})
	})
}

// stampTenant is the tenant of the i-th policy of stamps; every hundredth has a namespace.
func stampTenant(i int) string { return fmt.Sprintf("mix-r%04d", i) }

// stamps writes -replaced policies at once, from several clients, and waits until every
// replica acts by those that can be asked about.
func (w *world) stamps(ctx context.Context, t *testing.T, value string) {
	asked := map[string]string{}
	for i := 0; i < *replaced; i += max(1, *replaced/10) {
		asked[stampTenant(i)] = value
	}
	for tenant := range asked {
		w.namespace(t, tenant)
	}
	begin := time.Now()
	next := make(chan int)
	var clients sync.WaitGroup
	var failed error
	var mu sync.Mutex
	for range 16 {
		clients.Go(func() {
			for i := range next {
				for _, o := range load.Stamp(api.OwnGroup, stampTenant(i), stampTenant(i), value) {
					if err := w.putOne(ctx, o); err != nil {
						mu.Lock()
						failed = err
						mu.Unlock()
					}
				}
			}
		})
	}
	for i := range *replaced {
		next <- i
	}
	close(next)
	clients.Wait()
	if failed != nil {
		t.Error(failed)
	}
	written := time.Since(begin)
	acts := w.awaitStamps(ctx, begin, asked, time.Minute)
	w.data.Add(result.Line{T: w.data.At(begin), Change: &result.Change{
		What: fmt.Sprintf("%d at once", *replaced), Policies: *replaced, Written: written.Seconds(), Acts: acts,
	}})
}

// namespace makes the namespace of a tenant that has the tenant's name.
func (w *world) namespace(t *testing.T, tenant string) {
	w.put(t, []*unstructured.Unstructured{{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": tenant, "labels": map[string]any{load.TenantLabel: tenant}},
	}}})
}

// clockTenant has the policy that is changed again and again.
const clockTenant = "mix-clock"

// clockEvery is the time between two changes of one policy.
const clockEvery = 5 * time.Second

// clock changes one policy again and again, and measures when each replica acts by it.
func (w *world) clock(ctx context.Context, t *testing.T) {
	w.namespace(t, clockTenant)
	for ctx.Err() == nil {
		begin := time.Now()
		value := strconv.FormatInt(begin.UnixMilli(), 10)
		for _, o := range load.Stamp(api.OwnGroup, clockTenant, clockTenant, value) {
			if err := w.putOne(t.Context(), o); err != nil {
				w.fail("change of a policy: %v", err)
			}
		}
		written := time.Since(begin)
		acts := w.awaitStamps(t.Context(), begin, map[string]string{clockTenant: value}, 30*time.Second)
		w.data.Add(result.Line{T: w.data.At(begin), Change: &result.Change{What: "one", Policies: 1, Written: written.Seconds(), Acts: acts}})
		pause(ctx, clockEvery)
	}
}

// awaitStamps asks every replica until Pods in the namespaces of tenants get the labels
// that they should, and returns how many seconds that was after begin; -1 if it takes too
// long.
func (w *world) awaitStamps(ctx context.Context, begin time.Time, want map[string]string, patience time.Duration) float64 {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	late := -1.0
	for _, r := range w.Replicas() {
		for tenant, value := range want {
			for last := error(nil); ; {
				err := stamped(ctx, r, tenant, value)
				if err == nil {
					late = max(late, time.Since(begin).Seconds())
					break
				}
				// An error that the end of the time made says less than the one before.
				if ctx.Err() == nil || last == nil {
					last = err
				}
				if ctx.Err() != nil {
					w.fail("%s does not act by a changed policy: %v", r.Name, last)
					return -1
				}
				pause(ctx, 20*time.Millisecond)
			}
		}
	}
	return late
}

// stamped asks a replica about a Pod of a tenant.
func stamped(ctx context.Context, r *cluster.Replica, tenant, value string) error {
	pod := pods.New(1, 0)
	pod["metadata"].(map[string]any)["namespace"] = tenant
	review, err := load.PodReview(pod)
	if err != nil {
		return err
	}
	code, body, err := r.Ask(ctx, review.Body())
	if err != nil {
		return err
	}
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal([]byte(body), &answer); err != nil || code != http.StatusOK || answer.Response == nil {
		return fmt.Errorf("%d %.200s: %v", code, body, err)
	}
	if len(answer.Response.Patch) == 0 {
		return errors.New("there is no patch")
	}
	patch, err := jsonpatch.DecodePatch(answer.Response.Patch)
	if err != nil {
		return err
	}
	patched, err := patch.Apply(encode(pod))
	if err != nil {
		return err
	}
	var after unstructured.Unstructured
	if err := json.Unmarshal(patched, &after.Object); err != nil {
		return err
	}
	if got := after.GetLabels()["stamp"]; got != value {
		return fmt.Errorf("the label is %q, want %q", got, value)
	}
	return nil
}

// audit runs mapd audit over the whole cluster while all the rest goes on.
func (w *world) audit(ctx context.Context, t *testing.T) {
	begin := time.Now()
	mapd := *program
	if mapd == "" {
		mapd = cluster.Binary(t)
	}
	p := w.Process(t, "audit", mapd, "audit", "--kubeconfig", w.Kubeconfig(t, w.Config, ""), "--qps", "100")
	p.Start(t)
	w.mu.Lock()
	w.workers = append(w.workers, p)
	w.mu.Unlock()
	var last load.Usage
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		if u, err := load.ReadUsage(p.PID()); err == nil {
			last = u
		}
		select {
		case <-p.Done():
			running = false
		case <-ctx.Done():
			w.note("the audit had not ended")
			return
		case <-tick.C:
		}
	}
	a := &result.Audit{Seconds: time.Since(begin).Seconds(), CPU: last.CPU.Seconds(), MiB: float64(last.Peak>>10) / 1024, Code: p.ExitCode()}
	text := p.Log(t)
	if m := audited.FindStringSubmatch(text); m != nil {
		a.Objects, _ = strconv.Atoi(m[1]) // digits
		a.Changed, _ = strconv.Atoi(m[2])
	} else {
		w.fail("audit: it printed no total: %.300s", text[max(0, len(text)-300):])
	}
	w.data.Add(result.Line{T: w.data.At(begin), Audit: a})
}

var audited = regexp.MustCompile(`(\d+) objects evaluated: (\d+) would change`)
