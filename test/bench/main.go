// Command bench runs the in-tree plugin and mapd side by side, in one process
// on the same cases, and prints what each costs and how they relate.
//
// Both sides start where a request has been decoded: Kubernetes holds the Pod
// as its Go type, mapd as a tree. Both run all passes. Before anything is
// measured their answers are compared; a difference ends the run.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	mapdpolicy "github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/test/bench/pods"
	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/oracle"
	"github.com/mapd-project/mapd/test/subject"
)

func main() {
	testing.Init()
	quick := flag.Bool("quick", false, "one short measurement for each row, to see that it runs")
	flag.Parse()
	benchtime := "1s"
	if *quick {
		benchtime = "20ms"
	}
	if err := flag.Set("test.benchtime", benchtime); err != nil {
		panic(err)
	}
	if err := run(context.Background(), *quick); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, quick bool) error {
	fmt.Printf("%s, %d CPUs, %s\n\n", runtime.Version(), runtime.NumCPU(), runtime.GOOS+"/"+runtime.GOARCH)
	sizes := []struct {
		name string
		pod  map[string]any
	}{{"small", pods.New(3, 0)}, {"big", pods.New(20, 40)}}
	for _, p := range sizes {
		data, err := json.Marshal(p.pod)
		if err != nil {
			return err
		}
		fmt.Printf("%s Pod: %d containers, %.1f KiB with managed fields\n", p.name,
			len(p.pod["spec"].(map[string]any)["containers"].([]any)), float64(len(data))/1024)
	}
	fmt.Println("\n| policies that match | Pod | in-tree | mapd | ratio | mapd allocations |\n| --- | --- | --- | --- | --- | --- |")
	for _, p := range policies {
		for _, o := range sizes {
			for _, n := range []int{1, 10, 100} {
				if err := admitRow(ctx, p, o.name, o.pod, n); err != nil {
					return fmt.Errorf("%s, %s Pod, %d policies: %w", p.name, o.name, n, err)
				}
			}
		}
	}
	fmt.Println("\n| policies that do not match, small Pod | in-tree | mapd | mapd allocations |\n| --- | --- | --- | --- |")
	counts := []int{0, 1000, 10000}
	if quick {
		counts = []int{0, 100}
	}
	for _, miss := range []struct{ name, resource, selector string }{
		{"other resource", "configmaps", ""},
		{"other namespace", "pods", `"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}, `},
	} {
		for _, n := range counts {
			if err := missRow(ctx, miss.name, miss.resource, miss.selector, n); err != nil {
				return fmt.Errorf("%d policies for an%s: %w", n, miss.name, err)
			}
		}
	}
	return compileRows()
}

func admitRow(ctx context.Context, p policy, podName string, object map[string]any, n int) error {
	c, err := cases.Parse("bench", caseFile(p, n, object, "pods", ""))
	if err != nil {
		return err
	}
	tree, mapd, err := measure(ctx, c, true)
	if err != nil {
		return err
	}
	fmt.Printf("| %d × %s | %s | %s | %s | %.0f× | %d |\n", n, p.name, podName, perOp(tree), perOp(mapd),
		float64(tree.NsPerOp())/float64(mapd.NsPerOp()), mapd.AllocsPerOp())
	return nil
}

func missRow(ctx context.Context, name, resource, selector string, n int) error {
	c, err := cases.Parse("bench", caseFile(policies[0], max(n, 1), pods.New(3, 0), resource, selector))
	if err != nil {
		return err
	}
	if n == 0 {
		c.Policies, c.Bindings = nil, nil
	}
	// The in-tree plugin keeps half a megabyte for each compiled policy, so the
	// largest count is mapd's alone.
	inTree := n <= 1000
	tree, mapd, err := measure(ctx, c, inTree)
	if err != nil {
		return err
	}
	left := "not run"
	if inTree {
		left = perOp(tree)
	}
	fmt.Printf("| %d, %s | %s | %s | %d |\n", n, name, left, perOp(mapd), mapd.AllocsPerOp())
	return nil
}

// measure compares the two answers to a case and then what they cost.
func measure(ctx context.Context, c *cases.Case, inTree bool) (tree, mapd testing.BenchmarkResult, err error) {
	engine, err := subject.New(c)
	if err != nil {
		return tree, mapd, err
	}
	got := subject.Outcome(engine.Admit(ctx, subject.Request(&c.Request)))
	if inTree {
		o, err := oracle.New(c.Policies, c.Bindings, c.Params, c.Namespaces, c.CRDs, nil)
		if err != nil {
			return tree, mapd, err
		}
		request, err := o.Prepare(c.Request)
		if err != nil {
			return tree, mapd, err
		}
		want := o.Admit(ctx, request)
		if want.Panic != nil || want.Status != nil || got.Status != nil || want.Rounds != got.Rounds || !cases.Same(want.Object, got.Object) {
			return tree, mapd, fmt.Errorf("the answers differ (-in-tree +mapd):\n%s", cmp.Diff(want.Object, got.Object))
		}
		tree = testing.Benchmark(func(b *testing.B) {
			for b.Loop() {
				if _, _, err := o.Dispatch(ctx, request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	mapd = testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			// A new Request each time: what a request memoizes is paid by it.
			if d := engine.Admit(ctx, subject.Request(&c.Request)); d.Status != nil {
				b.Fatal(d.Status)
			}
		}
	})
	return tree, mapd, nil
}

// compileRows measures compiling one policy, and what it keeps.
func compileRows() error {
	fmt.Println("\n| compile one policy | in-tree | mapd | ratio | live heap in-tree | live heap mapd |\n| --- | --- | --- | --- | --- | --- |")
	for _, row := range []struct{ name, spec string }{
		{"one label by JSONPatch", `"mutations": [` + policies[0].mutation(1) + `]`},
		{"3 variables, 2 conditions, params", `"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
			"variables": [{"name": "a", "expression": "object.metadata.name"}, {"name": "b", "expression": "variables.a + '-b'"}, {"name": "c", "expression": "params.data.k"}],
			"matchConditions": [{"name": "x", "expression": "has(object.metadata.labels)"}, {"name": "y", "expression": "request.operation == 'CREATE'"}],
			"mutations": [` + jsonPatch(`[JSONPatch{op: "add", path: "/metadata/labels/l", value: variables.b + variables.c}]`) + `]`},
	} {
		var tree map[string]any
		if err := json.Unmarshal([]byte(`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": "p"},
			"spec": {"reinvocationPolicy": "Never", "matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]},`+row.spec+`}}`), &tree); err != nil {
			return err
		}
		obj, err := mapdpolicy.Decode(&unstructured.Unstructured{Object: tree})
		if err != nil {
			return err
		}
		deps := mapdpolicy.Deps{Env: subject.Env, Types: subject.Builtin}
		upstream := func() any {
			e, err := oracle.CompilePolicy(obj)
			if err != nil {
				panic(err) // it compiled when it was compared
			}
			return e
		}
		ours := func() any {
			p, err := mapdpolicy.Compile(obj, deps)
			if err != nil {
				panic(err)
			}
			return p
		}
		left, right := bench(upstream), bench(ours)
		fmt.Printf("| %s | %s | %s | %.0f× | %s | %s |\n", row.name, perOp(left), perOp(right),
			float64(left.NsPerOp())/float64(right.NsPerOp()), kept(upstream, 40), kept(ours, 1000))
	}
	return nil
}

func bench(f func() any) testing.BenchmarkResult {
	return testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			f()
		}
	})
}

// kept is the live heap that one result of f holds on to.
func kept(f func() any, n int) string {
	f()
	hold := make([]any, n)
	before := liveHeap()
	for i := range hold {
		hold[i] = f()
	}
	after := liveHeap()
	runtime.KeepAlive(hold)
	return fmt.Sprintf("%.1f KiB", float64(after-before)/float64(n)/1024)
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// perOp writes a duration with three digits that mean something.
func perOp(r testing.BenchmarkResult) string {
	d := time.Duration(r.NsPerOp())
	switch {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.2f µs", float64(d)/1e3)
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f µs", float64(d)/1e3)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.2f", float64(d)/1e6), ".00") + " ms"
}
