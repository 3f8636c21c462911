package cel

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// copied is a deep copy.
func copied(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v == nil {
			return v
		}
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = copied(e)
		}
		return out
	case []any:
		if v == nil {
			return v
		}
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = copied(e)
		}
		return out
	}
	return v
}

// alike compares results, in which NaN is NaN.
func alike(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) || (a == nil) != (b == nil) {
			return false
		}
		for k, v := range a {
			if other, ok := b[k]; !ok || !alike(v, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && (a == nil) == (b == nil) && slices.EqualFunc(a, b, alike)
	case []PatchOp:
		b, ok := b.([]PatchOp)
		return ok && slices.EqualFunc(a, b, func(x, y PatchOp) bool {
			v, w := x.Value, y.Value
			x.Value, y.Value = nil, nil
			return x == y && alike(v, w)
		})
	case map[ref.Val]ref.Val:
		b, ok := b.(map[ref.Val]ref.Val)
		return ok && alikeVals(types.NewRefValMap(types.DefaultTypeAdapter, a), types.NewRefValMap(types.DefaultTypeAdapter, b))
	case []ref.Val:
		b, ok := b.([]ref.Val)
		return ok && alikeVals(types.NewRefValList(types.DefaultTypeAdapter, a), types.NewRefValList(types.DefaultTypeAdapter, b))
	case ref.Val:
		b, ok := b.(ref.Val)
		return ok && alikeVals(a, b)
	case float64:
		b, ok := b.(float64)
		return ok && (a == b && math.Signbit(a) == math.Signbit(b) || a != a && b != b)
	}
	return reflect.DeepEqual(a, b)
}

// alikeVals compares what is left of values in JSON, if anything is.
func alikeVals(a, b ref.Val) bool {
	x, xErr := detour(a)
	y, yErr := detour(b)
	return alike(x, y) && (xErr == nil) == (yErr == nil)
}

// duel is a policy whose expressions are evaluated both ways.
type duel struct {
	w        *writer
	scope    *Scope
	programs []*Program
	seed     uint64
	counts   *counts
	results  []duelResult
}

// counts say how much was compared.
type counts struct{ written, compiled, known, evaluated, quickly, failed int }

// duelResult is what one evaluation gave. It is looked at after all of them: they
// share their room, but no part of a result.
type duelResult struct {
	got, want any
	expr      string
}

func newDuel(env *Env, seed uint64, c *counts) *duel {
	w := &writer{Rand: rand.New(rand.NewPCG(seed, 0)), metered: seed%4 != 0, single: seed%5 == 0}
	d := &duel{w: w, seed: seed, counts: c}
	wants := []Want{Bool, Object, JSONPatch, Bool}
	vars := Vars{Params: true, Variables: true}
	if !w.metered {
		wants = []Want{Bool, TypedPatch}
		vars = Vars{Params: true, Unmetered: true}
	}
	d.scope = env.Scope(vars)
	if w.metered {
		for _, name := range []string{"v", "u", "r"}[:w.IntN(4)] {
			k := kind(w.IntN(int(anys) + 1))
			if d.scope.Define(name, w.exactly(k)) == nil {
				w.variables = append(w.variables, typedName{"variables." + name, k})
			}
		}
	}
	for range 4 {
		want := wants[w.IntN(len(wants))]
		// Those that have a wrong type are dropped.
		c.written++
		expr := w.expression(want)
		p, err := d.scope.Compile(expr, want)
		if err != nil {
			// Not by a fault of ours; there is one in cel-go's checks.
			if text := err.Error(); strings.Contains(text, "internal error") && !strings.Contains(text, "index out of range [0] with length 0") {
				panic(text)
			}
			continue
		}
		c.compiled++
		if p.reads != 0 {
			d.programs = append(d.programs, p)
			if p.quick != nil {
				c.known++
			}
		}
	}
	return d
}

func (d *duel) String() string {
	var lines []string
	for _, v := range d.scope.variables {
		lines = append(lines, "variables."+v.name+": "+v.program.expr)
	}
	for _, p := range d.programs {
		lines = append(lines, p.expr)
	}
	return "seed " + strconv.FormatUint(d.seed, 10) + ":\n" + strings.Join(lines, "\n")
}

// fight evaluates all expressions for inputs that are made up, with a budget that is
// enough and with one that is nearly so.
func (d *duel) fight(t *testing.T, inputs int) {
	a, slow := &Activation{}, &Activation{}
	for range inputs {
		in, all := d.w.input()
		d.results = d.results[:0]
		before := copied(all)
		total := d.round(t, in, all, a, slow, MutationBudget)
		left := []int64{total, total - 1, total + 1, d.w.Int64N(total + 2)}[d.w.IntN(4)]
		d.round(t, in, all, a, slow, max(left, 0))
		for _, r := range d.results {
			if !alike(r.want, r.got) {
				t.Fatalf("%s\n%s\nwith %#v\nwant %#v\ngot  %#v", d, r.expr, all, r.want, r.got)
			}
		}
		if !alike(before, all) {
			t.Fatalf("%s\nmodified its input:\n%#v\nwas %#v", d, all, before)
		}
	}
}

// round evaluates all expressions with one budget and returns what they cost.
func (d *duel) round(t *testing.T, in *Input, all any, a, slow *Activation, left int64) int64 {
	budget, slowBudget := Budget{left}, Budget{left}
	d.scope.Rebind(a, in, &budget)
	d.scope.Rebind(slow, in, &slowBudget)
	for _, p := range d.programs {
		d.counts.evaluated++
		got, ok, err := runQuickly(p, t.Context(), a)
		if !ok {
			// Both are cel-go then, but variables may have been evaluated quickly.
			got, err = run(p, t.Context(), a)
		}
		want, wantErr := runSlowly(p, t.Context(), slow)
		sameError := errText(err) == errText(wantErr) || !ok && ofAnyOrder(errText(err)) && ofAnyOrder(errText(wantErr))
		if !sameError || budget != slowBudget {
			t.Fatalf("%s\nprogram %s\n%#v\ncel-go: %v, %v, cost %d\nquick way (%v): %v, %v, cost %d", d, p.expr, all,
				want, wantErr, left-slowBudget.Remaining, ok, got, err, left-budget.Remaining)
		}
		switch {
		case wantErr != nil:
			d.counts.failed++
		case ok:
			d.counts.quickly++
		}
		if wantErr == nil {
			d.results = append(d.results, duelResult{got: got, want: want, expr: p.expr})
		}
		if budget.Remaining < 0 {
			break
		}
	}
	return left - max(budget.Remaining, 0)
}

// ofAnyOrder tells errors that print a map, or are one of several that are in a map.
func ofAnyOrder(text string) bool {
	return strings.Contains(text, "join: invalid input") || strings.Contains(text, "could not marshal to JSON") || strings.Contains(text, "for JSONPatchType '")
}

// The quick evaluator has no answer or agrees with cel-go, whatever the expression.
func TestQuickRandom(t *testing.T) {
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	seeds, inputs := uint64(400), 100
	if testing.Short() {
		seeds, inputs = 150, 20
	}
	var c counts
	for seed := range seeds {
		newDuel(env, seed, &c).fight(t, inputs)
	}
	t.Logf("%+v", c)
	if c.quickly*4 < c.evaluated {
		t.Errorf("%d of %d evaluations were quick; too few to say much", c.quickly, c.evaluated)
	}
}

// A seed is a policy, the other one is where its inputs begin.
func FuzzQuick(f *testing.F) {
	env, err := NewEnv(Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint64(1), uint64(1))
	f.Fuzz(func(t *testing.T, seed, data uint64) {
		d := newDuel(env, seed, &counts{})
		d.w.Rand = rand.New(rand.NewPCG(seed, data))
		d.fight(t, 100)
	})
}
