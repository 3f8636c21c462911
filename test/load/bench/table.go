package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/test/bench/pods"
	"github.com/mapd-project/mapd/test/load"
)

// connections are the numbers of connections to measure with.
var connections = []int{1, 4, 16}

// whole are the servers to measure, and short those for -quick. The floors come first.
var (
	whole = []subject{
		{name: "floor: allow", floor: "allow"},
		{name: "floor: patch", floor: "patch"},
		{name: "mapd, no policy", kind: load.Label},
		labels(1, 1), labels(10, 10), labels(100, 100),
		{name: "mapd, 100 container fields", kind: load.Pull, policies: 100, matching: 100},
		labels(10_000, 10),
	}
	short = []subject{whole[0], whole[1], labels(100, 100), labels(1000, 10)}
)

func labels(policies, matching int) subject {
	s := subject{name: fmt.Sprintf("mapd, %d labels", matching), kind: load.Label, policies: policies, matching: matching}
	if matching == 1 {
		s.name = "mapd, 1 label"
	}
	if policies > matching {
		s.name += fmt.Sprintf(" of %d", policies)
	}
	return s
}

// A pod is a Pod that is sent.
type pod struct {
	name   string
	object map[string]any
	review *load.Review
}

func newPods(out io.Writer) ([]pod, error) {
	all := []pod{{name: "small", object: pods.New(3, 0)}, {name: "big", object: pods.New(20, 40)}}
	for i, p := range all {
		var err error
		if all[i].review, err = load.PodReview(p.object); err != nil {
			return nil, err
		}
		data, err := json.Marshal(p.object)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(out, "%s Pod: %d containers, %.1f KiB with managed fields\n", p.name,
			len(p.object["spec"].(map[string]any)["containers"].([]any)), float64(len(data))/1024)
	}
	return all, nil
}

// key identifies a row of the table.
type key struct {
	server, pod string
	connections int
}

// figures has the figures of all turns of a row.
type figures struct {
	requests int
	took     time.Duration
	p50, p99 []time.Duration
	cpu      time.Duration
}

func (f *figures) perRequest() time.Duration { return f.cpu / time.Duration(max(1, f.requests)) }

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// table measures the servers of a plan and prints the table.
func table(ctx context.Context, f *flags, plan []subject) error {
	fmt.Fprintf(f.out, "%s, %d CPUs, %s\n", runtime.Version(), runtime.NumCPU(), runtime.GOOS+"/"+runtime.GOARCH)
	all, err := newPods(f.out)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mapd-load-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if f.mapd, err = filepath.Abs(f.mapd); err != nil {
		return err
	}
	cert, err := newCertificate(dir)
	if err != nil {
		return err
	}
	var servers []*server
	defer func() {
		for _, s := range servers {
			s.stop()
		}
	}()
	r := results{rows: map[key]*figures{}, memory: map[string]load.Usage{}, loaded: map[string]time.Duration{}}
	for _, s := range plan {
		began := time.Now()
		v, err := start(ctx, f, s, dir, cert)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		r.loaded[s.name] = time.Since(began)
		servers = append(servers, v)
		for _, p := range all {
			if err := v.check(ctx, p); err != nil {
				return fmt.Errorf("%s, %s Pod: %w", s.name, p.name, err)
			}
		}
	}
	for _, p := range all {
		for _, n := range connections {
			for range f.turns {
				for _, v := range servers {
					if err := r.turn(ctx, v, p, n, f.each); err != nil {
						return fmt.Errorf("%s, %s Pod, %d connections: %w", v.name, p.name, n, err)
					}
				}
			}
		}
	}
	r.print(f.out, plan, all)
	return nil
}

// check sends one review, applies the patch of the answer, and checks the Pod.
func (v *server) check(ctx context.Context, p pod) error {
	response, err := v.client[1].Ask(ctx, p.review)
	if err != nil {
		return err
	}
	if !response.Allowed {
		return fmt.Errorf("refused: %v", response.Result)
	}
	object, err := json.Marshal(p.object)
	if err != nil {
		return err
	}
	if len(response.Patch) > 0 {
		patch, err := jsonpatch.DecodePatch(response.Patch)
		if err != nil {
			return fmt.Errorf("patch: %w", err)
		}
		if object, err = patch.Apply(object); err != nil {
			return fmt.Errorf("patch: %w", err)
		}
	}
	var after unstructured.Unstructured
	if err := json.Unmarshal(object, &after.Object); err != nil {
		return err
	}
	switch v.floor {
	case "allow":
		if len(response.Patch) > 0 {
			return fmt.Errorf("an unwanted patch: %s", response.Patch)
		}
	case "patch":
		if got := after.GetLabels()[load.FloorLabel]; got != "v" {
			return fmt.Errorf("label %s is %q", load.FloorLabel, got)
		}
	default:
		return v.kind.Done(&after, v.matching)
	}
	return nil
}

// results has the results that are printed.
type results struct {
	rows map[key]*figures
	// memory has the largest usage of each server that was seen after a turn.
	memory map[string]load.Usage
	loaded map[string]time.Duration
}

func (r *results) turn(ctx context.Context, v *server, p pod, n int, each time.Duration) error {
	m, err := measure(ctx, v.client[n], p.review, load.Limits{Requests: load.MaxRequests, Time: each}, v.pid)
	if err != nil {
		return err
	}
	if m.Err != nil {
		return fmt.Errorf("%d errors: %w", m.Errors, m.Err)
	}
	k := key{v.name, p.name, n}
	row := r.rows[k]
	if row == nil {
		row = &figures{}
		r.rows[k] = row
	}
	row.requests += m.Requests
	row.took += m.Took
	row.cpu += m.cpu * time.Duration(m.Requests)
	row.p50, row.p99 = append(row.p50, m.Latency.P50), append(row.p99, m.Latency.P99)
	most := r.memory[v.name]
	most.RSS, most.Anon, most.Peak = max(most.RSS, m.used.RSS), max(most.Anon, m.used.Anon), max(most.Peak, m.used.Peak)
	r.memory[v.name] = most
	return nil
}

func (r *results) print(out io.Writer, plan []subject, all []pod) {
	for _, p := range all {
		fmt.Fprintf(out, "\n| %s Pod | connections | requests/s | p50 | p99 | CPU | CPU ÷ floor | p99 ÷ floor |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n", p.name)
		for _, s := range plan {
			for _, n := range connections {
				row := r.rows[key{s.name, p.name, n}]
				fmt.Fprintf(out, "| %s | %d | %.0f | %s | %s | %s | %s | %s |\n", s.name, n, float64(row.requests)/row.took.Seconds(),
					ms(median(row.p50)), ms(median(row.p99)), ms(row.perRequest()),
					times(r.cpuRatio(s.name, p.name, n)), times(r.p99Ratio(s.name, p.name, n)))
			}
		}
	}
	fmt.Fprintln(out, "\nCPU is that of the server's process for a request; the floor is the one that patches.")
	fmt.Fprintln(out, "\n| server | ready after | RSS under load | without files, such as the program | RSS at the most |\n| --- | --- | --- | --- | --- |")
	for _, s := range plan {
		used := r.memory[s.name]
		fmt.Fprintf(out, "| %s | %.1f s | %s | %s | %s |\n", s.name, r.loaded[s.name].Seconds(), mib(used.RSS), mib(used.Anon), mib(used.Peak))
	}
	r.printGoals(out, plan, all)
}

func (r *results) ratio(server, pod string, connections int, of func(*figures) time.Duration) float64 {
	floor := of(r.rows[key{"floor: patch", pod, connections}])
	if floor == 0 {
		return 0
	}
	return float64(of(r.rows[key{server, pod, connections}])) / float64(floor)
}

func (r *results) cpuRatio(server, pod string, connections int) float64 {
	return r.ratio(server, pod, connections, (*figures).perRequest)
}

func (r *results) p99Ratio(server, pod string, connections int) float64 {
	return r.ratio(server, pod, connections, func(f *figures) time.Duration { return median(f.p99) })
}

func times(x float64) string {
	if x == 0 {
		return "not known"
	}
	return fmt.Sprintf("%.2f×", x)
}

// printGoals prints which goals are met. The goal for p99, twice the time of the floor, is only
// for up to ten policies: with more, a server may use four times the CPU of the floor, and cannot
// answer in twice its time if both cores are busy.
func (r *results) printGoals(out io.Writer, plan []subject, all []pod) {
	fmt.Fprintln(out, "\n| goal | is | |\n| --- | --- | --- |")
	for _, s := range plan {
		if s.matching < 10 {
			continue
		}
		limit := 2.0
		if s.matching > 10 {
			limit = 4
		}
		for _, p := range all {
			worst := 0.0
			for _, n := range connections {
				worst = max(worst, r.cpuRatio(s.name, p.name, n))
			}
			goal(out, fmt.Sprintf("%s, %s Pod: CPU ≤ %.0f× the floor's", strings.TrimPrefix(s.name, "mapd, "), p.name, limit), times(worst), worst, limit)
		}
	}
	for _, s := range plan {
		if s.floor != "" || s.matching > 10 {
			continue
		}
		for _, p := range all {
			x := r.p99Ratio(s.name, p.name, 16)
			goal(out, fmt.Sprintf("%s, %s Pod: p99 at 16 connections ≤ 2× the floor's", strings.TrimPrefix(s.name, "mapd, "), p.name), times(x), x, 2)
		}
	}
	for _, s := range plan {
		limit := 0.0
		switch s.policies {
		case 100:
			limit = 64
		case 10_000:
			limit = 300
		default:
			continue
		}
		rss := r.memory[s.name].RSS
		goal(out, fmt.Sprintf("%s: RSS < %.0f MiB", strings.TrimPrefix(s.name, "mapd, "), limit), mib(rss), float64(rss)/(1<<20), limit)
	}
}

func goal(out io.Writer, what, is string, value, limit float64) {
	verdict := "not met"
	switch {
	case value == 0:
		verdict = ""
	case value <= limit:
		verdict = "met"
	}
	fmt.Fprintf(out, "| %s | %s | %s |\n", what, is, verdict)
}
