//go:build e2e

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

var (
	loadFor  = flag.Duration("load", time.Minute, "how long TestLoad sends requests")
	loadRate = flag.Int("rate", 200, "how many requests per second TestLoad sends")
)

// loadPolicies is how many policies there are.
const loadPolicies = 50

// loadPath is where a namespace's objects of a resource are.
func loadPath(resource string) string {
	name, group, _ := strings.Cut(resource, ".")
	if group == "" {
		return "/api/v1/namespaces/load/" + name
	}
	return "/apis/" + group + "/v1/namespaces/load/" + name
}

// A loaded is a resource that TestLoad creates objects of.
type loaded struct {
	resource string
	// groups are those of its policies, failurePolicy and reinvocationPolicy, in
	// turn. An API server makes a call for each, and more if they reinvoke.
	groups [][2]string
	object map[string]any
	// stored objects are deleted again; the others are dry runs.
	stored bool
}

func loadedResources() []loaded {
	var (
		never    = [2]string{"Fail", "Never"}
		again    = [2]string{"Fail", "IfNeeded"}
		lenient  = [2]string{"Ignore", "Never"}
		lenient2 = [2]string{"Ignore", "IfNeeded"}
	)
	pod := map[string]any{"containers": []any{
		map[string]any{"name": "app", "image": "shop/app:1", "env": []any{map[string]any{"name": "A", "value": "1"}}},
		map[string]any{"name": "log", "image": "shop/log:1"},
	}}
	app := map[string]any{"app": "web"}
	return []loaded{
		{"configmaps", [][2]string{never}, map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"a": "1"}}, true},
		{"deployments.apps", [][2]string{never, again}, map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "spec": map[string]any{
			"replicas": 2, "selector": map[string]any{"matchLabels": app},
			"template": map[string]any{"metadata": map[string]any{"labels": app}, "spec": pod},
		}}, false},
		{"pods", [][2]string{never, lenient, again, lenient2}, map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": pod}, false},
		{"services", [][2]string{never, lenient}, map[string]any{"apiVersion": "v1", "kind": "Service", "spec": map[string]any{
			"clusterIP": "None", "ports": []any{map[string]any{"port": 80}},
		}}, false},
		{"serviceaccounts", [][2]string{lenient2}, map[string]any{"apiVersion": "v1", "kind": "ServiceAccount"}, true},
	}
}

// loadPolicy is the i-th policy of a resource: each adds a label, in one of five
// ways.
func loadPolicy(r loaded, i int) madePolicy {
	group := r.groups[i%len(r.groups)]
	name := fmt.Sprintf("%s-%d", strings.ReplaceAll(r.resource, ".", "-"), i)
	p := madePolicy{name: name, failure: group[0], reinvocation: group[1], resource: r.resource}
	label := fmt.Sprintf("policy-%d", i)
	const settings = `paramKind: {apiVersion: v1, kind: ConfigMap}`
	switch i % 5 {
	case 0:
		p.mutation = labelled(label)
	case 1:
		p.mutation = fmt.Sprintf(`[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey(%q), value: "yes"}]`, label)
	case 2:
		p.mutation = fmt.Sprintf(`Object{metadata: Object.metadata{labels: {%q: params.data.value}}}`, label)
		p.spec, p.binding = settings, `paramRef: {name: settings, namespace: load-settings, parameterNotFoundAction: Deny}`
	case 3:
		p.mutation = fmt.Sprintf(`[JSONPatch{op: "add", path: "/metadata/labels/%s", value: params.data.value}]`, label)
		p.spec, p.binding = settings, `paramRef: {selector: {matchLabels: {load: "yes"}}, namespace: load-settings, parameterNotFoundAction: Deny}`
	case 4:
		p.mutation = fmt.Sprintf(`Object{metadata: Object.metadata{labels: {%q: variables.answer}}}`, label)
		p.spec = `variables: [{name: answer, expression: 'object.metadata.labels.all(k, v, k != "none") ? "yes" : "no"'}],
  matchConditions: [{name: people, expression: 'request.userInfo.username != "nobody"'}]`
	}
	return p
}

// TestLoad sends writes through the API server for a minute, at a steady rate or as
// many as the servers take. No
// request may fail or miss a mutation, and neither memory nor goroutines of a
// replica may grow once it is warm.
func TestLoad(t *testing.T) {
	t.Parallel() // other tests make it slower, which is no failure
	profiles := map[*cluster.Replica]string{}
	m := cluster.Installed(t, cluster.InstallOptions{Replicas: -1})
	m.NeedProcesses(t)
	for range 2 {
		addr := fmt.Sprintf("127.0.0.1:%d", cluster.FreePort(t))
		profiles[m.AddReplica(t, "--pprof", addr)] = addr
	}
	m.WaitReady(t)

	resources := loadedResources()
	per := loadPolicies / len(resources)
	var all []madePolicy
	for _, r := range resources {
		for i := range per {
			all = append(all, loadPolicy(r, i))
		}
	}
	m.Apply(t, `
{apiVersion: v1, kind: Namespace, metadata: {name: load}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: load-settings}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: load-settings}, data: {value: "yes"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: chosen, namespace: load-settings, labels: {load: "yes"}}, data: {value: "yes"}}
`+policiesYAML(all...))
	l := &load{sender: newSender(t, m.Cluster), per: per}
	cluster.Eventually(t, cluster.Patience, "all policies to act", func(ctx context.Context) error {
		for _, r := range resources {
			if err := l.one(ctx, r, "probe-"+strings.ReplaceAll(r.resource, ".", "-")); err != nil {
				return err
			}
		}
		return nil
	})

	m.Proxy.Cut() // so that no connection is counted
	idle := map[*cluster.Replica]usage{}
	for _, r := range m.Replicas() {
		idle[r] = atRest(t, r, profiles[r])
	}
	serverCPU := l.serverCPU(t)
	samples := sample(t, m, profiles)
	took := l.run(resources, *loadFor, *loadRate)
	taken := samples()
	serverCPU = l.serverCPU(t) - serverCPU

	for i, err := range l.errs {
		if i == 10 {
			t.Errorf("and %d more", len(l.errs)-i)
			break
		}
		t.Error(err)
	}
	slices.Sort(l.latencies)
	at := func(q float64) time.Duration {
		return l.latencies[min(len(l.latencies)-1, int(q*float64(len(l.latencies))))].Round(10 * time.Microsecond)
	}
	t.Logf("%d creates and %d deletes in %s (%.0f creates/s), %d errors; latency of a create p50 %s, p90 %s, p99 %s, p99.9 %s, max %s",
		len(l.latencies), l.deletes, took.Round(time.Millisecond), float64(len(l.latencies))/took.Seconds(), len(l.errs),
		at(.5), at(.9), at(.99), at(.999), l.latencies[len(l.latencies)-1].Round(10*time.Microsecond))
	t.Logf("CPU of the API server %.2f of a core", serverCPU/took.Seconds())
	calls := 0.0
	for i, r := range m.Replicas() {
		s := taken[i]
		calls += s[len(s)-1].calls - s[0].calls
		t.Logf("%s: CPU %.2f of a core, %.0f calls/s", r.Name, (s[len(s)-1].cpu-s[0].cpu)/took.Seconds(), (s[len(s)-1].calls-s[0].calls)/took.Seconds())
		checkGrowth(t, r.Name, s)
	}
	t.Logf("%.1f calls of mapd for each create", calls/float64(len(l.latencies)))

	// What a load leaves behind when its connections are gone: nothing.
	m.Proxy.Cut()
	for _, r := range m.Replicas() {
		before := idle[r]
		after := atRest(t, r, profiles[r])
		t.Logf("%s at rest: heap %.1f MiB, was %.1f; %.0f goroutines, were %.0f", r.Name, after.live/mib, before.live/mib, after.inner, before.inner)
		if after.live > before.live*1.1+mib/2 || after.inner > before.inner+3 {
			t.Errorf("%s has grown", r.Name)
		}
	}
}

// atRest waits until a replica is at rest and returns what it uses then.
func atRest(t *testing.T, r *cluster.Replica, addr string) (last usage) {
	t.Helper()
	times := 0
	cluster.Eventually(t, cluster.Patience, r.Name+" to be at rest", func(ctx context.Context) error {
		var now usage
		if err := now.profile(ctx, addr); err != nil {
			return err
		}
		if times++; now.inner != last.inner {
			times = 1
		}
		last = now
		if times < 10 {
			return fmt.Errorf("it has %v goroutines", now.inner)
		}
		return nil
	})
	return last
}

// load is the state of one TestLoad.
type load struct {
	sender sender
	per    int // policies of each resource

	mu        sync.Mutex
	latencies []time.Duration // of creates, from when they were due
	deletes   int
	errs      []error
}

// loadBound is how many requests may be without an answer. Servers that cannot keep
// up, on a machine that does other things too, get less.
const loadBound = 50

// run sends creates at a rate, each on its own, and returns how long that took.
func (l *load) run(resources []loaded, d time.Duration, rate int) time.Duration {
	start := time.Now()
	due := time.NewTicker(time.Second / time.Duration(rate))
	defer due.Stop()
	free := make(chan struct{}, loadBound)
	var requests sync.WaitGroup
	// A tick that was missed is made up for: what counts is when a request was due.
	for i := 0; time.Since(start) < d; {
		for ; i < int(time.Since(start).Seconds()*float64(rate)) && time.Since(start) < d; i++ {
			at := start.Add(time.Duration(i) * time.Second / time.Duration(rate))
			r, name := resources[i%len(resources)], fmt.Sprintf("load-%d", i)
			free <- struct{}{}
			requests.Go(func() {
				defer func() { <-free }()
				err := l.one(context.Background(), r, name)
				took := time.Since(at)
				l.note(func() {
					l.latencies = append(l.latencies, took)
					if err != nil {
						l.errs = append(l.errs, err)
					}
				})
				if !r.stored || err != nil {
					return
				}
				code, body, err := l.sender.send(context.Background(), http.MethodDelete, loadPath(r.resource)+"/"+name, nil)
				if err == nil && code != http.StatusOK {
					err = fmt.Errorf("delete of %s %s: %d %s", r.resource, name, code, body.Message)
				}
				l.note(func() {
					l.deletes++
					if err != nil {
						l.errs = append(l.errs, err)
					}
				})
			})
		}
		<-due.C
	}
	requests.Wait()
	return time.Since(start)
}

func (l *load) note(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// one creates an object and checks that all policies of its resource have mutated
// it.
func (l *load) one(ctx context.Context, r loaded, name string) error {
	object := maps.Clone(r.object)
	object["metadata"] = map[string]any{"name": name, "labels": map[string]any{"app": "web"}}
	path := loadPath(r.resource)
	if !r.stored || strings.HasPrefix(name, "probe") {
		path += "?dryRun=All"
	}
	code, body, err := l.sender.send(ctx, http.MethodPost, path, object)
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", r.resource, name, err)
	case code != http.StatusCreated:
		return fmt.Errorf("%s %s: %d %s", r.resource, name, code, body.Message)
	}
	for i := range l.per {
		if label := fmt.Sprintf("policy-%d", i); body.Metadata.Labels[label] != "yes" {
			return fmt.Errorf("%s %s: policy %d did not act", r.resource, name, i)
		}
	}
	return nil
}

// serverCPU is how many seconds the API server has computed.
func (l *load) serverCPU(t *testing.T) float64 {
	t.Helper()
	code, body, err := l.sender.send(t.Context(), http.MethodGet, "/metrics", nil)
	if err != nil || code != http.StatusOK {
		t.Fatal(code, err)
	}
	v, err := sumMetric(body.Message, "process_cpu_seconds_total", "")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// usage is what a replica uses at a moment.
type usage struct {
	rss, goroutines, cpu, calls float64
	// These are not measured each time; they are 0 then.
	live  float64 // heap after a collection
	inner float64 // goroutines that do not belong to a connection
}

// sample looks at all replicas once a second, and at their profiles every fifth
// second, until the returned function is called.
func sample(t *testing.T, m *cluster.Mapd, profiles map[*cluster.Replica]string) (stop func() [][]usage) {
	ctx, cancel := context.WithCancel(t.Context())
	replicas := m.Replicas()
	out := make([][]usage, len(replicas))
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for n := 0; ; n++ {
			for i, r := range replicas {
				u, err := look(ctx, r)
				if err == nil && n%5 == 4 {
					err = u.profile(ctx, profiles[r])
				}
				if err != nil {
					if ctx.Err() == nil {
						failed = errors.Join(failed, err)
					}
					continue
				}
				out[i] = append(out[i], u)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return func() [][]usage {
		t.Helper()
		cancel()
		<-done
		if failed != nil {
			t.Error(failed)
		}
		return out
	}
}

func look(ctx context.Context, r *cluster.Replica) (u usage, err error) {
	_, text, err := r.Get(ctx, "/metrics")
	if err != nil {
		return u, err
	}
	for name, into := range map[string]*float64{
		"process_resident_memory_bytes": &u.rss, "go_goroutines": &u.goroutines, "process_cpu_seconds_total": &u.cpu,
		"mapd_request_duration_seconds_count": &u.calls,
	} {
		*into, err = sumMetric(text, name, "")
		if err != nil {
			return u, err
		}
	}
	return u, nil
}

// profile collects garbage in a replica and looks at what is left, and at its
// goroutines. How many connections an API server keeps is its own affair: it opens
// as many as it has requests at a time.
func (u *usage) profile(ctx context.Context, addr string) error {
	heap, err := profile(ctx, addr, "heap?gc=1&debug=1")
	if err != nil {
		return err
	}
	_, text, _ := strings.Cut(heap, "\n# HeapAlloc = ")
	text, _, _ = strings.Cut(text, "\n")
	if u.live, err = strconv.ParseFloat(text, 64); err != nil {
		return fmt.Errorf("size of the heap: %w", err)
	}
	goroutines, err := profile(ctx, addr, "goroutine?debug=1")
	if err != nil {
		return err
	}
	// One paragraph for all that are in the same place, which begins with their
	// number.
	for group := range strings.SplitSeq(goroutines, "\n\n") {
		text, stack, ok := strings.Cut(group, " @ ")
		// One that has not run yet has no stack: net/http starts it with each request,
		// this one too.
		if !ok || !strings.Contains(stack, "\n#") || strings.Contains(group, "net/http.(*conn)") || strings.Contains(group, "net/http.(*connReader)") {
			continue
		}
		n, err := strconv.ParseFloat(text[strings.LastIndexByte(text, '\n')+1:], 64)
		if err != nil {
			return fmt.Errorf("number of goroutines: %w", err)
		}
		u.inner += n
	}
	return nil
}

func profile(ctx context.Context, addr, name string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/debug/pprof/"+name, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

const mib = 1 << 20

// checkGrowth compares the medians of two windows: the second and the third third
// of the time. In the first one connections are made and pools filled. It looks at
// memory only: goroutines come and go with requests, and are compared at rest.
func checkGrowth(t *testing.T, name string, all []usage) {
	t.Helper()
	if len(all) < 15 {
		t.Logf("%s: %d samples are too few to compare", name, len(all))
		return
	}
	third := len(all) / 3
	middle, last := all[third:2*third], all[2*third:]
	total := func(u usage) float64 { return u.goroutines }
	t.Logf("%s: goroutines %.0f, later %.0f", name, median(middle, total), median(last, total))
	for _, c := range []struct {
		what        string
		of          func(usage) float64
		unit        float64
		factor, add float64
	}{
		{"RSS in MiB", func(u usage) float64 { return u.rss }, mib, 1.1, 4},
		{"heap after collection in MiB", func(u usage) float64 { return u.live }, mib, 1.1, 1},
	} {
		a, b := median(middle, c.of)/c.unit, median(last, c.of)/c.unit
		t.Logf("%s: %s %.1f, later %.1f", name, c.what, a, b)
		if b > a*c.factor+c.add {
			t.Errorf("%s: %s grew from %.1f to %.1f", name, c.what, a, b)
		}
	}
}

// median is that of the samples that have the value.
func median(all []usage, of func(usage) float64) float64 {
	var values []float64
	for _, u := range all {
		if v := of(u); v > 0 {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}
