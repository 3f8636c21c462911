package cel

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/mapd-project/mapd/test/hammer"
)

// policies are what BenchmarkCompile compiles: expressions of one policy.
var policies = map[string]struct {
	definitions []definition
	want        Want
	expr        string
}{
	"label": {nil, Object, `Object{metadata: Object.metadata{labels: {"team": "x"}}}`},
	"jsonpatch": {nil, JSONPatch,
		`[JSONPatch{op: "add", path: "/metadata/labels/" + jsonpatch.escapeKey("a.b/c"), value: object.metadata.name}]`},
	"containers": {nil, Object,
		`Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}`},
	"variables": {[]definition{
		{"v%d_team", "params.data.team"},
		{"v%d_count", "size(object.spec.containers)"},
		{"v%d_names", "object.spec.containers.map(c, c.name)"},
	}, Object, `Object{metadata: Object.metadata{labels: {"team": string(variables.v%d_team), "n": string(variables.v%d_count)}}}`},
}

// numbered puts a number into names, so that no two policies have the same
// variables and nothing can be kept from one to the next.
func numbered(format string, n int) string {
	args := []any{}
	for i := 0; i+1 < len(format); i++ {
		if format[i:i+2] == "%d" {
			args = append(args, n)
		}
	}
	return fmt.Sprintf(format, args...)
}

func compilePolicy(tb testing.TB, env *Env, n int, definitions []definition, want Want, expr string) (*Scope, *Program) {
	s := env.Scope(Vars{Params: true, Variables: true})
	for _, d := range definitions {
		if err := s.Define(numbered(d.name, n), d.expr); err != nil {
			tb.Fatal(err)
		}
	}
	// The comment keeps programs from being shared.
	p, err := s.Compile(fmt.Sprintf("%s // %d", numbered(expr, n), n), want)
	if err != nil {
		tb.Fatal(err)
	}
	s.Done()
	return s, p
}

// BenchmarkCompile compiles one policy; "in-tree-x" is how many times longer
// the in-tree plugin takes, measured in the same run.
func BenchmarkCompile(b *testing.B) {
	for name, tt := range policies {
		b.Run(name, func(b *testing.B) {
			env, err := NewEnv(Options{})
			if err != nil {
				b.Fatal(err)
			}
			inTree := func() {
				up := newUpstream(b, tt.definitions, tt.expr, tt.want, true)
				if len(tt.definitions) == 0 && len(up.evaluator.CompilationErrors()) > 0 {
					b.Fatal(up.evaluator.CompilationErrors())
				}
			}
			compilePolicy(b, env, 0, tt.definitions, tt.want, tt.expr)
			inTree()
			const rounds = 20
			start := time.Now()
			for range rounds {
				inTree()
			}
			each := time.Since(start) / rounds
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n++
				compilePolicy(b, env, n, tt.definitions, tt.want, tt.expr)
			}
			b.ReportMetric(float64(each)/(float64(b.Elapsed())/float64(b.N)), "in-tree-x")
		})
	}
}

// evaluations are what BenchmarkEval evaluates and how often that may allocate.
var evaluations = []struct {
	name   string
	allocs float64
	want   Want
	expr   string
}{
	{"constant", 0, Object, `Object{metadata: Object.metadata{labels: {"team": "x"}}}`},
	{"constant variable", 0, Object, `Object{metadata: Object.metadata{labels: {"team": variables.text}}}`},
	{"label", 6, Object, `Object{metadata: Object.metadata{labels: {"team": object.metadata.name}}}`},
	{"jsonpatch", 0, JSONPatch, `[JSONPatch{op: "add", path: "/metadata/labels/x", value: object.metadata.name}]`},
	{"containers", 14, Object, `Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: object.spec.template.spec.containers.map(c, Object.spec.template.spec.containers{name: c.name, imagePullPolicy: "Always"})}}}}`},
	{"containers 20", 46, Object, `Object{spec: Object.spec{containers: object.spec.many.map(c, Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}`},
	{"condition", 0, Bool, `has(object.metadata.labels) && object.metadata.labels.app == "web"`},
	{"variables", 9, Object, `Object{metadata: Object.metadata{labels: {"n": string(variables.n), "team": string(variables.team), "a": variables.names[0]}}}`},
}

// evaluator returns what evaluates one mutation with its variables, as a request does
// that has evaluated others before; result conversion is included.
func evaluator(tb testing.TB, want Want, expr string) func() error {
	w := testWorld(tb)
	many := []any{}
	for i := range 20 {
		many = append(many, map[string]any{"name": fmt.Sprint("c", i), "image": "i"})
	}
	w.object["spec"].(map[string]any)["many"] = many
	input := w.input()
	s := testScope(tb, Vars{Params: true, Variables: true}, []definition{
		{"n", "size(object.spec.template.spec.containers)"},
		{"names", "object.spec.template.spec.containers.map(c, string(c.name))"},
		{"team", "params.data.team"},
		{"text", "'t'"},
	})
	p, err := s.Compile(expr, want)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(tb.Context())
	tb.Cleanup(cancel)
	a := &Activation{}
	var budget Budget
	return func() (err error) {
		budget.Remaining = MutationBudget
		s.Rebind(a, input, &budget)
		switch want {
		case Bool:
			_, err = p.Bool(ctx, a)
		case Object:
			_, err = p.Object(ctx, a)
		default:
			_, err = p.JSONPatch(ctx, a)
		}
		return err
	}
}

func BenchmarkEval(b *testing.B) {
	for _, tt := range evaluations {
		b.Run(tt.name, func(b *testing.B) {
			evaluate := evaluator(b, tt.want, tt.expr)
			b.ReportAllocs()
			for b.Loop() {
				if err := evaluate(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestAllocations holds what common mutations may allocate: their results.
func TestAllocations(t *testing.T) {
	for _, tt := range evaluations {
		t.Run(tt.name, func(t *testing.T) {
			evaluate := evaluator(t, tt.want, tt.expr)
			got := hammer.Allocs(t, func() {
				if err := evaluate(); err != nil {
					t.Fatal(err)
				}
			})
			if got > tt.allocs {
				t.Errorf("%v allocations, want at most %v", got, tt.allocs)
			}
		})
	}
}

// TestRetained holds the goal of 16 KiB of live heap per one-mutation policy.
func TestRetained(t *testing.T) {
	hammer.Alone(t)
	const count, goal = 200, 16 << 10
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range policies {
		t.Run(name, func(t *testing.T) {
			compilePolicy(t, env, count, tt.definitions, tt.want, tt.expr)
			type kept struct {
				scope   *Scope
				program *Program
			}
			all := make([]kept, count)
			before := liveHeap()
			for i := range all {
				all[i].scope, all[i].program = compilePolicy(t, env, i, tt.definitions, tt.want, tt.expr)
			}
			each := (int64(liveHeap()) - int64(before)) / count
			runtime.KeepAlive(all)
			t.Logf("%d bytes per policy", each)
			if each > goal {
				t.Errorf("a policy retains %d bytes, want at most %d", each, goal)
			}
		})
	}
}

func liveHeap() uint64 {
	// Twice, to empty the pools.
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkNewEnv is what a process pays once.
func BenchmarkNewEnv(b *testing.B) {
	for b.Loop() {
		env, err := NewEnv(Options{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := env.Scope(Vars{}).Compile("[JSONPatch{}]", JSONPatch); err != nil {
			b.Fatal(err)
		}
	}
}
