// Command bench runs Gatekeeper's mutation and mapd's side by side, in one
// process on the same mutators and objects, and prints what each costs and how
// they relate.
//
// Both sides start where the request's object has been decoded, as both webhooks
// decode it, and stop where the last pass is over: neither the decoding nor the
// patch is in the figures. Gatekeeper changes the object that it is given, so it
// gets a copy each time, and what the copy costs is taken off. mapd's figures
// include the record of what each mutator did. Before anything is measured the
// answers are compared; a difference ends the run.
//
// The two take turns; a figure is the median of all turns, with the distance to
// the farthest of them.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mapd-project/mapd/test/bench/pods"
	"github.com/mapd-project/mapd/test/gatekeeper"
)

func main() {
	testing.Init()
	quick := flag.Bool("quick", false, "one short measurement for each row, to see that it runs")
	turns := flag.Int("count", 5, "how many times each side is measured")
	only := flag.String("run", "", "only the rows whose title has this in it")
	flag.Parse()
	benchtime := "100ms"
	if *quick {
		benchtime, *turns = "20ms", 1
	}
	if err := flag.Set("test.benchtime", benchtime); err != nil {
		panic(err)
	}
	b := bench{turns: *turns, only: *only}
	if err := b.run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type bench struct {
	turns int
	only  string
}

func (b *bench) run(ctx context.Context) error {
	library, err := gatekeeper.Library()
	if err != nil {
		return err
	}
	documented, err := gatekeeper.Documented()
	if err != nil {
		return err
	}
	fmt.Printf("\n%s, %d CPUs, %s; %d turns each\n", goruntime.Version(), goruntime.NumCPU(), goruntime.GOOS+"/"+goruntime.GOARCH, b.turns)
	fmt.Println("\n| mutators | Pod | | Gatekeeper | mapd | ratio | Gatekeeper allocations | mapd allocations |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, set := range []struct {
		name     string
		mutators []*unstructured.Unstructured
	}{
		{"1 AssignMetadata", labels(1)}, {"10 AssignMetadata", labels(10)}, {"100 AssignMetadata", labels(100)},
		{"1 Assign in all containers", fields(1)}, {"10 Assigns in all containers", fields(10)}, {"100 Assigns in all containers", fields(100)},
		{fmt.Sprintf("%d of the library", len(library)), library},
		{fmt.Sprintf("%d of the library and the documentation", len(library)+len(documented)), slices.Concat(library, documented)},
	} {
		for _, p := range []struct {
			name string
			pod  map[string]any
		}{{"small", pods.New(3, 0)}, {"big", pods.New(20, 40)}} {
			if !strings.Contains(set.name+", "+p.name, b.only) {
				continue
			}
			if err := b.rows(ctx, set.name, set.mutators, p.name, p.pod); err != nil {
				return fmt.Errorf("%s, %s Pod: %w", set.name, p.name, err)
			}
		}
	}
	return nil
}

// labels are n mutators that set a label each.
func labels(n int) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for i := range n {
		all = append(all, mutator("AssignMetadata", i, map[string]any{
			"location":   fmt.Sprintf("metadata.labels.l%d", i),
			"parameters": map[string]any{"assign": map[string]any{"value": "v"}}}))
	}
	return all
}

// fields are n mutators that set a field each in all containers.
func fields(n int) []*unstructured.Unstructured {
	var all []*unstructured.Unstructured
	for i := range n {
		all = append(all, mutator("Assign", i, map[string]any{
			"applyTo":    []any{map[string]any{"groups": []any{""}, "versions": []any{"v1"}, "kinds": []any{"Pod"}}},
			"location":   fmt.Sprintf("spec.containers[name: *].securityContext.f%d", i),
			"parameters": map[string]any{"assign": map[string]any{"value": "v"}}}))
	}
	return all
}

func mutator(kind string, i int, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "mutations.gatekeeper.sh/v1", "kind": kind,
		"metadata": map[string]any{"name": fmt.Sprintf("m%03d", i)}, "spec": spec}}
}

// rows measures a Pod as it comes, and as it is after the mutators.
func (b *bench) rows(ctx context.Context, set string, us []*unstructured.Unstructured, name string, pod map[string]any) error {
	s, differences, err := gatekeeper.NewComparison().Take(us)
	if err != nil {
		return err
	}
	if len(differences) > 0 {
		return fmt.Errorf("the sides differ: %s", differences[0])
	}
	if pod, err = decoded(pod); err != nil {
		return err
	}
	for _, state := range []string{"to be changed", "as wanted"} {
		after, err := b.row(ctx, s, fmt.Sprintf("| %s | %s | %s |", set, name, state), pod)
		if err != nil {
			return fmt.Errorf("%s: %w", state, err)
		}
		if pod, err = decoded(after); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) row(ctx context.Context, s *gatekeeper.Set, title string, pod map[string]any) (after map[string]any, err error) {
	r := gatekeeper.Request{Object: pod, Namespace: "default", Operation: "CREATE", Source: "Original", NamespaceObject: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "default"}}}
	differences, err := gatekeeper.NewComparison().Request(ctx, s, r)
	if err != nil {
		return nil, err
	}
	if len(differences) > 0 {
		return nil, fmt.Errorf("the answers differ: %s", differences[0])
	}
	want, err := s.Gatekeeper.Mutate(ctx, r)
	if err != nil {
		return nil, err
	}
	if want.Error != "" {
		return nil, fmt.Errorf("refused: %s", want.Error)
	}
	measured, err := s.Gatekeeper.Measured(ctx, r)
	if err != nil {
		return nil, err
	}
	admit := s.Runtime.Measured(ctx, r)
	var theirs, ours []testing.BenchmarkResult
	var net, own, ratios []float64
	for range b.turns {
		copying := measure(func() error { _ = runtime.DeepCopyJSON(pod); return nil })
		t, o := measure(measured), measure(admit)
		t.T -= time.Duration(float64(perOp(copying)) * float64(t.N))
		t.MemAllocs -= min(t.MemAllocs, uint64(copying.AllocsPerOp())*uint64(t.N))
		theirs, ours = append(theirs, t), append(ours, o)
		net, own, ratios = append(net, perOp(t)), append(own, perOp(o)), append(ratios, perOp(t)/perOp(o))
	}
	ratio, off := median(ratios)
	fmt.Printf("%s %s | %s | %.1f× ±%.0f%% | %d | %d |\n", title, figure(net), figure(own), ratio, off, theirs[0].AllocsPerOp(), ours[0].AllocsPerOp())
	return want.Object, nil
}

// perOp is in nanoseconds.
func perOp(r testing.BenchmarkResult) float64 { return float64(r.T) / float64(r.N) }

// median returns the middle of some figures, and how far from it the farthest is, in
// percent.
func median(figures []float64) (middle, off float64) {
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	middle = (sorted[n/2] + sorted[(n-1)/2]) / 2
	return middle, 100 * max(middle-sorted[0], sorted[n-1]-middle) / middle
}

func figure(ns []float64) string {
	middle, off := median(ns)
	return fmt.Sprintf("%s ±%.0f%%", short(time.Duration(middle)), off)
}

func measure(f func() error) testing.BenchmarkResult {
	return testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := f(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// decoded is a tree as it comes with the next request.
func decoded(tree map[string]any) (map[string]any, error) {
	data, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{}
	err = u.UnmarshalJSON(data)
	return u.Object, err
}

// short writes a duration with three digits that mean something.
func short(d time.Duration) string {
	switch {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.2f µs", float64(d)/1e3)
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f µs", float64(d)/1e3)
	}
	return fmt.Sprintf("%.2f ms", float64(d)/1e6)
}
