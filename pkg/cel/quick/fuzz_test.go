package quick_test

import (
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/test/hammer"
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
	case []cel.PatchOp:
		b, ok := b.([]cel.PatchOp)
		return ok && slices.EqualFunc(a, b, func(x, y cel.PatchOp) bool {
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
	x, xErr := a.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	y, yErr := b.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if xErr != nil || yErr != nil {
		return xErr != nil && yErr != nil
	}
	return alike(x.(*structpb.Value).AsInterface(), y.(*structpb.Value).AsInterface())
}

// duel is a policy whose expressions are evaluated with package quick and without.
type duel struct {
	w        *writer
	scopes   [2]*cel.Scope // the second one has cel-go only
	programs []program
	texts    []string
	seed     uint64
	counts   *counts
	results  []duelResult
}

// program is one expression.
type program struct {
	expr string
	want cel.Want
	of   [2]*cel.Program
}

// evaluate evaluates the program of a side.
func (p *program) evaluate(side int, ctx context.Context, a *cel.Activation) (any, error) {
	switch p.want {
	case cel.Bool:
		b, err := p.of[side].Bool(ctx, a)
		return b, err
	case cel.Object:
		m, err := p.of[side].Object(ctx, a)
		return m, err
	}
	ops, err := p.of[side].JSONPatch(ctx, a)
	return append([]cel.PatchOp{}, ops...), err
}

// counts say how much was compared.
type counts struct{ written, compiled, known, evaluated, quickly, failed int }

// duelResult is what one evaluation gave. It is looked at after all of them: they
// share their room, but no part of a result.
type duelResult struct {
	got, want any
	expr      string
}

// newDuel makes up a policy. Both sides compile the same expressions, or refuse them
// with the same error.
func newDuel(t *testing.T, envs [2]*cel.Env, seed uint64, c *counts) *duel {
	w := &writer{Rand: rand.New(rand.NewPCG(seed, 0)), metered: seed%4 != 0, single: seed%5 == 0}
	d := &duel{w: w, seed: seed, counts: c}
	wants := []cel.Want{cel.Bool, cel.Object, cel.JSONPatch, cel.Bool}
	vars := cel.Vars{Params: true, Variables: true}
	if !w.metered {
		wants = []cel.Want{cel.Bool, cel.TypedPatch}
		vars = cel.Vars{Params: true, Unmetered: true}
	}
	for side, env := range envs {
		d.scopes[side] = env.Scope(vars)
	}
	if w.metered {
		for _, name := range []string{"v", "u", "r"}[:w.IntN(4)] {
			k := kind(w.IntN(int(anys) + 1))
			expr := w.exactly(k)
			err, other := d.scopes[0].Define(name, expr), d.scopes[1].Define(name, expr)
			if errText(err) != errText(other) {
				t.Fatalf("%s: %v; with cel-go only %v", expr, err, other)
			}
			if err == nil {
				w.variables = append(w.variables, typedName{"variables." + name, k})
				d.texts = append(d.texts, "variables."+name+": "+expr)
			}
		}
	}
	for range 4 {
		p := program{want: wants[w.IntN(len(wants))]}
		// Those that have a wrong type are dropped.
		c.written++
		p.expr = w.expression(p.want)
		var errs [2]error
		for side, scope := range d.scopes {
			p.of[side], errs[side] = scope.Compile(p.expr, p.want)
		}
		if errText(errs[0]) != errText(errs[1]) {
			t.Fatalf("%s: %v; with cel-go only %v", p.expr, errs[0], errs[1])
		}
		if errs[0] != nil {
			// Not by a fault of ours; there is one in cel-go's checks.
			if text := errText(errs[0]); strings.Contains(text, "internal error") && !strings.Contains(text, "index out of range [0] with length 0") {
				t.Fatal(text)
			}
			continue
		}
		c.compiled++
		if p.of[0].Reads() != 0 {
			d.programs = append(d.programs, p)
			d.texts = append(d.texts, p.expr)
			if p.of[0].IsQuick() {
				c.known++
			}
		}
	}
	return d
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (d *duel) String() string {
	return "seed " + strconv.FormatUint(d.seed, 10) + ":\n" + strings.Join(d.texts, "\n")
}

// fight evaluates all expressions for inputs that are made up, with a budget that is
// enough and with one that is nearly so.
func (d *duel) fight(t *testing.T, inputs int) {
	sides := [2]*cel.Activation{{}, {}}
	for range inputs {
		in, all := d.w.input()
		d.results = d.results[:0]
		before := copied(all)
		total := d.round(t, in, all, sides, cel.MutationBudget)
		left := []int64{total, total - 1, total + 1, d.w.Int64N(total + 2)}[d.w.IntN(4)]
		d.round(t, in, all, sides, max(left, 0))
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
func (d *duel) round(t *testing.T, in *cel.Input, all any, sides [2]*cel.Activation, left int64) int64 {
	budgets := [2]cel.Budget{{Remaining: left}, {Remaining: left}}
	for side, a := range sides {
		d.scopes[side].Rebind(a, in, &budgets[side])
	}
	for i := range d.programs {
		p := &d.programs[i]
		d.counts.evaluated++
		before := sides[0].Quick()
		got, err := p.evaluate(0, t.Context(), sides[0])
		quickly := sides[0].Quick() > before
		want, wantErr := p.evaluate(1, t.Context(), sides[1])
		sameError := errText(err) == errText(wantErr) || ofAnyOrder(errText(err)) && ofAnyOrder(errText(wantErr))
		if !sameError || budgets[0] != budgets[1] {
			t.Fatalf("%s\nprogram %s\n%#v\ncel-go: %v, %v, cost %d\nquick (%v): %v, %v, cost %d", d, p.expr, all,
				want, wantErr, left-budgets[1].Remaining, quickly, got, err, left-budgets[0].Remaining)
		}
		switch {
		case wantErr != nil:
			d.counts.failed++
		default:
			if quickly {
				d.counts.quickly++
			}
			d.results = append(d.results, duelResult{got: got, want: want, expr: p.expr})
		}
		if budgets[0].Remaining < 0 {
			break
		}
	}
	return left - max(budgets[0].Remaining, 0)
}

// ofAnyOrder tells errors that print a map, or are one of several that are in a map.
func ofAnyOrder(text string) bool {
	return strings.Contains(text, "join: invalid input") || strings.Contains(text, "could not marshal to JSON") || strings.Contains(text, "for JSONPatchType '")
}

// environments are of package cel, with package quick and without.
func environments(t testing.TB) (envs [2]*cel.Env) {
	for side := range envs {
		env, err := cel.NewEnv(cel.Options{CELGo: side == 1})
		if err != nil {
			t.Fatal(err)
		}
		envs[side] = env
	}
	return envs
}

// Package quick declines or agrees with cel-go, whatever the expression.
func TestRandom(t *testing.T) {
	hammer.Alone(t)
	envs := environments(t)
	var c counts
	for seed := range uint64(hammer.Count(150)) {
		newDuel(t, envs, seed, &c).fight(t, 60)
	}
	t.Logf("%+v", c)
	if c.quickly*4 < c.evaluated {
		t.Errorf("%d of %d evaluations were quick; too few to say much", c.quickly, c.evaluated)
	}
}

// A seed is a policy, the other one is where its inputs begin.
func FuzzQuick(f *testing.F) {
	envs := environments(f)
	f.Add(uint64(1), uint64(1))
	f.Fuzz(func(t *testing.T, seed, data uint64) {
		d := newDuel(t, envs, seed, &counts{})
		d.w.Rand = rand.New(rand.NewPCG(seed, data))
		d.fight(t, 100)
	})
}
