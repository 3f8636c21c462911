package cel

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// writer makes up expressions in what the quick way knows, and data for them.
type writer struct {
	*rand.Rand
	depth int
	loops []string
}

func (w *writer) deeper(f func() string) string {
	w.depth++
	defer func() { w.depth-- }()
	return f()
}

func (w *writer) boolean() string {
	if w.depth > 4 {
		return w.choose("true", "false", "has(object.a)", "has(object.b.a)", "object.b == 1")
	}
	return w.deeper(func() string {
		switch w.IntN(14) {
		case 0:
			return "has(" + w.path() + ")"
		case 1:
			return "!" + w.boolean()
		case 2:
			return "(" + w.boolean() + " && " + w.boolean() + ")"
		case 3:
			return "(" + w.boolean() + " || " + w.boolean() + ")"
		case 4, 5:
			return "(dyn(" + w.value() + ") " + w.choose("==", "!=") + " dyn(" + w.value() + "))"
		case 6:
			return "(type(" + w.value() + ") == " + w.choose("map", "list", "string", "int", "double", "bool") + ")"
		case 7:
			return "(" + w.value() + " in " + w.list() + ")"
		case 8, 9:
			over := w.list()
			return over + w.loop(w.choose("exists", "all"), 1, w.boolean)
		case 10:
			return w.optional() + ".hasValue()"
		case 11:
			return w.text() + "." + w.choose("startsWith", "endsWith") + "(" + w.text() + ")"
		case 12:
			return "(" + w.boolean() + " ? " + w.boolean() + " : " + w.boolean() + ")"
		default:
			return "dyn(" + w.value() + ") == true"
		}
	})
}

func (w *writer) choose(of ...string) string { return of[w.IntN(len(of))] }

// loop writes the call of a macro with variables, of which outer ones may be hidden.
func (w *writer) loop(macro string, variables int, body func() string) string {
	known := len(w.loops)
	defer func() { w.loops = w.loops[:known] }()
	names := []string{w.choose("x", "y", "object"), w.choose("z", "e")}[:variables]
	w.loops = append(w.loops, names...)
	filter := ""
	if (macro == "map" || macro == "transformList") && w.IntN(3) == 0 {
		filter = w.boolean() + ", "
	}
	return "." + macro + "(" + strings.Join(names, ", ") + ", " + filter + body() + ")"
}

func (w *writer) path() string {
	root := w.choose(append([]string{"object", "params", "object", "oldObject"}, w.loops...)...)
	for range 1 + w.IntN(2) {
		root += w.choose(".a", ".b", ".c")
	}
	return root
}

func (w *writer) optional() string {
	s := w.choose("object", "params", w.path())
	for range 1 + w.IntN(2) {
		s += w.choose(".?a", ".?b", ".?c", `[?"a"]`)
	}
	return s
}

func (w *writer) list() string {
	switch w.IntN(4) {
	case 0:
		return "[" + "dyn(" + w.value() + "), dyn(" + w.value() + ")]"
	case 1:
		return w.optional() + ".orValue([])"
	}
	return w.path()
}

func (w *writer) text() string {
	if w.depth > 5 {
		return `"t"`
	}
	return w.deeper(func() string {
		switch w.IntN(6) {
		case 0:
			return w.choose(`"a"`, `""`, `"lång"`, `"a longer text than others"`, "request.namespace", `request.?namespace.orValue("")`)
		case 1, 2:
			return "(" + w.text() + " + " + w.text() + ")"
		case 3:
			return "string(" + w.value() + ")"
		case 4:
			return "(" + w.boolean() + " ? " + w.text() + " : " + w.text() + ")"
		default:
			return w.path()
		}
	})
}

func (w *writer) value() string {
	if w.depth > 4 {
		return w.choose("1", `"a"`, "2.5", "null", "object.a", "params.b")
	}
	return w.deeper(func() string {
		switch w.IntN(16) {
		case 0:
			return w.choose("1", "0", "1.0", "-0.0", `"a"`, `""`, "true", "null", "-9223372036854775808")
		case 1, 2, 3:
			return w.path()
		case 4:
			return w.optional() + ".orValue(" + w.choose("null", `""`, "0", "{}") + ")"
		case 5:
			return "[dyn(" + w.value() + "), dyn(" + w.value() + ")]"
		case 6:
			return `{"a": dyn(` + w.value() + `), "` + w.choose("a", "b", "") + `": dyn(` + w.value() + ")}"
		case 7:
			over := w.list()
			return over + w.loop(w.choose("map", "filter"), 1, w.boolean)
		case 8:
			over := w.list()
			return over + w.loop("transformList", 2, w.value) + w.choose("", ".reverse()")
		case 9:
			return w.choose(w.path(), w.list(), w.text()) + ".size()"
		case 10:
			return "(" + w.path() + " - " + w.choose("1", w.path()) + ")"
		case 11:
			return w.text() + ".substring(" + w.choose("0", "1", w.value()) + ", " + w.choose("1", w.value()) + ")"
		case 12:
			return "(" + w.boolean() + " ? dyn(" + w.value() + ") : dyn(" + w.value() + "))"
		case 13:
			return w.path() + "[dyn(" + w.value() + ")]"
		case 14:
			return w.path() + "[?" + w.text() + "].orValue(dyn(" + w.value() + "))"
		default:
			return w.text()
		}
	})
}

func (w *writer) patch() string {
	if w.depth > 4 {
		return "[" + w.operation() + "]"
	}
	return w.deeper(func() string {
		switch w.IntN(7) {
		case 0:
			return "(" + w.boolean() + " ? " + w.patch() + " : " + w.patch() + ")"
		case 1:
			return "(" + w.patch() + " + " + w.patch() + ")"
		case 2:
			over := w.list()
			return over + w.loop("map", 1, w.operation)
		case 3:
			over := w.list()
			return over + w.loop("transformList", 2, w.operation)
		case 4:
			over := w.list()
			return over + w.loop("transformList", 2, w.patch) + ".flatten()"
		case 5:
			return "[" + w.operation() + ", " + w.operation() + "]"
		default:
			return "[" + w.operation() + "]"
		}
	})
}

func (w *writer) operation() string {
	op := `JSONPatch{op: "` + w.choose("add", "remove", "replace") + `", path: "/" + ` + w.text()
	if w.IntN(2) == 0 {
		op += ", value: " + w.value()
	}
	return op + "}"
}

// Leaves of data: those of JSON, and what it does not have.
var (
	leaves   = []any{"a", "", "é", "\xff", int64(1), int64(0), 1.0, 2.5, true, nil, int64(-1 << 63), int64(1<<53 + 1), float64(1 << 53)}
	oddities = []any{map[string]any(nil), []any(nil), math.Copysign(0, -1), math.NaN(), math.Inf(1), int32(1), uint64(1), []string{"a"}, json.Number("1")}
)

// data makes up a tree; roots are objects.
func (w *writer) data(depth int) any {
	switch n := w.IntN(12); {
	case depth == 0 || n < 5 && depth < 4:
		m := map[string]any{}
		for _, k := range []string{"a", "b", "c", "", "\xff"} {
			if k == "\xff" && w.IntN(20) > 0 {
				continue
			}
			if w.IntN(6) > 0 {
				m[k] = w.data(depth + 1)
			}
		}
		return m
	case n < 8 && depth < 4:
		l := []any{}
		for range w.IntN(4) {
			l = append(l, w.data(depth+1))
		}
		return l
	}
	if w.IntN(10) == 0 {
		return oddities[w.IntN(len(oddities))]
	}
	return leaves[w.IntN(len(leaves))]
}

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

// quickAgainstSlow writes expressions and compares both ways to evaluate them. It
// returns how many evaluations the quick way did alone.
func quickAgainstSlow(t *testing.T, env *Env, seed uint64) (quickly int) {
	w := &writer{Rand: rand.New(rand.NewPCG(seed, 0))}
	slow, fast := env.Scope(Vars{Params: true}), env.Scope(Vars{Params: true, Unmetered: true})
	want, expr := Bool, ""
	if seed%2 == 0 {
		expr = w.boolean()
	} else {
		want, expr = TypedPatch, w.patch()
	}
	s, err := slow.Compile(expr, want)
	if err != nil {
		return 0 // of a type that no such expression may have
	}
	q, err := fast.Compile(expr, want)
	if err != nil {
		t.Fatalf("seed %d: %s\nunmetered: %v", seed, expr, err)
	}
	// What one evaluation gave is looked at after all of them: they share their
	// room, but no part of a result.
	type result struct{ in, before, got, want any }
	var results []result
	a := &Activation{}
	for range 8 {
		in := &Input{Object: w.data(0).(map[string]any), OldObject: w.data(0).(map[string]any), Params: w.data(0).(map[string]any)}
		request := map[string]any{}
		if w.IntN(4) > 0 {
			request["namespace"] = w.choose("a", "", "lång", "\xff")
		}
		in.Request = func() map[string]any { return request }
		r := result{in: []any{in.Object, in.OldObject, in.Params, request}}
		r.before = copied(r.in)
		bound := fast.Rebind(a, in, nil)
		// Where it gives up, both are cel-go, which goes over maps in any order.
		var ok bool
		var wantErr error
		if want == Bool {
			if r.got, ok = q.quick.bool(t.Context(), bound); ok {
				r.want, wantErr = s.Bool(t.Context(), slow.Bind(in, nil))
			}
		} else {
			var ops, slowOps []PatchOp
			if ops, ok = q.quick.operations(t.Context(), bound); ok {
				slowOps, wantErr = s.JSONPatch(t.Context(), slow.Bind(in, nil))
			}
			r.got, r.want = append([]PatchOp{}, ops...), append([]PatchOp{}, slowOps...)
		}
		if wantErr != nil {
			t.Fatalf("seed %d: %s\n%#v\ncel-go: %v, the quick way: %v", seed, expr, r.in, wantErr, r.got)
		}
		if ok {
			quickly++
			results = append(results, r)
		}
	}
	for _, r := range results {
		if diff := cmp.Diff(r.want, r.got); diff != "" {
			t.Fatalf("seed %d: %s\nobject, oldObject, params and request %#v (-want +got):\n%s", seed, expr, r.in, diff)
		}
		if diff := cmp.Diff(r.before, r.in, cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("seed %d: %s\nmodified its input:\n%s", seed, expr, diff)
		}
	}
	return quickly
}

// The quick way gives up or agrees with cel-go, whatever the expression.
func TestQuickRandom(t *testing.T) {
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	quickly, seeds := 0, uint64(2500)
	if testing.Short() {
		seeds = 250
	}
	for seed := range seeds {
		quickly += quickAgainstSlow(t, env, seed)
	}
	if uint64(quickly) < seeds*6/10 {
		t.Errorf("%d evaluations were quick; too few to say anything", quickly)
	}
}

func FuzzQuick(f *testing.F) {
	env, err := NewEnv(Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) { quickAgainstSlow(t, env, seed) })
}
