// Command bench runs Gatekeeper's mutation and mapd's side by side, in one
// process on the same mutators and objects, and prints what each costs and how
// they relate.
//
// Both sides start where the object is a tree and stop where its last pass is
// over: neither the decoding nor the patch is in the figures. Gatekeeper changes
// the object that it is given, so it gets a copy each time, and what the copy
// costs is taken off. Before anything is measured the answers are compared; a
// difference ends the run.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
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
	flag.Parse()
	benchtime := "500ms"
	if *quick {
		benchtime = "20ms"
	}
	if err := flag.Set("test.benchtime", benchtime); err != nil {
		panic(err)
	}
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	library, err := gatekeeper.Library()
	if err != nil {
		return err
	}
	fmt.Println("\n| mutators | Pod | | Gatekeeper | mapd | ratio | Gatekeeper allocations | mapd allocations |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, set := range []struct {
		name     string
		mutators []*unstructured.Unstructured
	}{
		{"1 AssignMetadata", labels(1)}, {"10 AssignMetadata", labels(10)}, {"100 AssignMetadata", labels(100)},
		{"1 Assign in all containers", fields(1)}, {"10 Assigns in all containers", fields(10)}, {"100 Assigns in all containers", fields(100)},
		{fmt.Sprintf("%d of the library", len(library)), library},
	} {
		for _, p := range []struct {
			name string
			pod  map[string]any
		}{{"small", pods.New(3, 0)}, {"big", pods.New(20, 40)}} {
			if err := rows(ctx, set.name, set.mutators, p.name, p.pod); err != nil {
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
func rows(ctx context.Context, set string, us []*unstructured.Unstructured, name string, pod map[string]any) error {
	s, differences, err := gatekeeper.NewComparison().Take(us)
	if err != nil {
		return err
	}
	if len(differences) > 0 {
		return fmt.Errorf("the sides differ: %s", differences[0])
	}
	for _, state := range []string{"to be changed", "as wanted"} {
		after, err := row(ctx, s, fmt.Sprintf("| %s | %s | %s |", set, name, state), pod)
		if err != nil {
			return fmt.Errorf("%s: %w", state, err)
		}
		if pod, err = decoded(after); err != nil {
			return err
		}
	}
	return nil
}

func row(ctx context.Context, s *gatekeeper.Set, title string, pod map[string]any) (after map[string]any, err error) {
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
	copying := measure(func() error { _ = runtime.DeepCopyJSON(pod); return nil })
	theirs, ours := measure(measured), measure(s.Runtime.Measured(ctx, r))
	net := time.Duration(theirs.NsPerOp() - copying.NsPerOp())
	fmt.Printf("%s %s | %s | %.1f× | %d | %d |\n", title, short(net), short(time.Duration(ours.NsPerOp())),
		float64(net)/float64(ours.NsPerOp()), theirs.AllocsPerOp()-copying.AllocsPerOp(), ours.AllocsPerOp())
	return want.Object, nil
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
