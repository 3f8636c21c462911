package cel

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// writer makes up expressions in what the quick way knows, and data for them.
type writer struct {
	*rand.Rand
	depth     int
	loops     []string
	variables []string // of the policy, so far
	metered   bool
	single    bool // maps have one key, but for those at the root
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
		switch w.IntN(20) {
		case 0:
			return "has(" + w.path() + ")"
		case 14:
			return "(" + w.number() + w.choose(" < ", " <= ", " > ", " >= ") + w.number() + ")"
		case 15:
			return "(dyn(" + w.value() + ") in " + w.choose(`["a", "b", ""]`, `[1, 2]`, `[]`, `[dyn(1), "a", 2.5]`, `[dyn("a"), null]`, `["a", object.a]`, `{"a": 1, "": 2}`) + ")"
		case 16:
			return w.text() + w.choose(`.matches("^a")`, `.matches("[a-z]+g?$")`, `.contains("a")`, ".contains("+w.text()+")")
		case 17:
			return "has(" + w.choose("("+w.boolean()+" ? "+w.path()+" : "+w.path()+")", w.path()+"[dyn("+w.value()+")]", w.optional()+".orValue({})") + ".a)"
		case 18:
			return "(" + w.boolean() + w.choose(" == ", " != ") + w.boolean() + ")"
		case 19:
			if len(w.variables) > 0 {
				return "has(variables." + w.choose(w.variables...) + ")"
			}
			return "has(request.namespace)"
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
	roots := append([]string{"object", "params", "object", "oldObject", "namespaceObject.metadata"}, w.loops...)
	for _, v := range w.variables {
		roots = append(roots, "dyn(variables."+v+")", "variables."+v)
	}
	if w.depth < 4 && w.IntN(10) == 0 {
		return w.deeper(func() string {
			return "(" + w.boolean() + " ? dyn(" + w.path() + ") : " + w.choose("dyn("+w.path()+")", w.path(), `dyn({"a": 1})`) + ")" + w.choose("", ".a", ".b")
		})
	}
	root := w.choose(roots...)
	switch {
	case strings.HasPrefix(root, "namespaceObject"):
		return root + w.choose(".labels.a", ".name", ".labels", `.labels["b"]`)
	case strings.HasPrefix(root, "variables") && w.IntN(2) == 0:
		return root
	}
	for range 1 + w.IntN(2) {
		root += w.choose(".a", ".b", ".c", ".a", ".b", `["a"]`, "[0]", "[1]", "[object.a]", `[string(object.b)]`, `[has(object.a) ? object.a : "b"]`)
	}
	return root
}

func (w *writer) number() string {
	return w.choose("1", "2", w.list()+".size()", "size("+w.path()+")", "dyn("+w.path()+")", "(size("+w.path()+") + 1)")
}

func (w *writer) optional() string {
	s := w.choose("object", "params", w.path())
	for range 1 + w.IntN(2) {
		s += w.choose(".?a", ".?b", ".?c", `[?"a"]`, ".a", "[?0]", "[?object.a]", `[?string(object.b)]`, ".?a[0]")
	}
	if !strings.Contains(s, "?") {
		s += ".?b"
	}
	if w.depth > 3 {
		return s
	}
	return w.deeper(func() string {
		switch w.IntN(8) {
		case 3:
			over := w.optional()
			return over + w.loop("optMap", 1, w.value)
		case 0:
			return s + ".or(" + w.optional() + ")"
		case 1:
			return w.choose("optional.none()", "optional.of(dyn("+w.value()+"))")
		case 2:
			return "(" + w.boolean() + " ? " + w.optional() + " : " + w.optional() + ")"
		}
		return s
	})
}

func (w *writer) list() string {
	switch w.IntN(4) {
	case 0:
		return "[" + "dyn(" + w.value() + "), dyn(" + w.value() + ")]"
	case 1:
		return w.optional() + ".orValue([])"
	case 2:
		if w.depth < 5 {
			return w.deeper(func() string { return "(" + w.list() + " + " + w.choose(`["x"]`, "[]", `[{"a": "b"}]`, w.list()) + ")" })
		}
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
			return w.choose("string("+w.value()+")", "jsonpatch.escapeKey(dyn("+w.text()+"))", "string(size("+w.path()+"))", "string("+w.boolean()+")", w.list()+".map(x, string(x))"+w.choose(".join()", ".join("+w.text()+")"), "dyn("+w.list()+").join()")
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
		switch w.IntN(18) {
		case 16:
			return w.list()
		case 17:
			return w.optional() + ".value()"
		case 0:
			return w.choose("1", "0", "1.0", "-0.0", `"a"`, `""`, "true", "null", "-9223372036854775808")
		case 1, 2, 3:
			return w.path()
		case 4:
			return w.optional() + ".orValue(" + w.choose("null", `""`, "0", "{}") + ")"
		case 5:
			return "[dyn(" + w.value() + "), dyn(" + w.value() + ")]"
		case 6:
			// Of one key, since loops go over maps in any order.
			return `{` + w.choose(`"a"`, `"b"`, w.text()) + `: dyn(` + w.value() + ")}"
		case 7:
			over := w.list()
			return over + w.loop(w.choose("map", "filter"), 1, w.boolean)
		case 8:
			over := w.list()
			return over + w.loop("transformList", 2, w.value) + w.choose("", "", ".reverse()")
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
	switch w.IntN(5) {
	case 0, 1:
		op += ", value: " + w.value()
	case 2:
		op += ", from: " + w.text()
	case 3:
		op += ", value: " + w.object("Object.v", 3)
	}
	return op + "}"
}

// object writes a literal of the type, or of another at times.
func (w *writer) object(name string, depth int) string {
	if w.IntN(40) == 0 {
		name += "x"
	}
	field := func(path string) string {
		if depth > 3 {
			return w.value()
		}
		inner := func() string { return w.object(path, depth+1) }
		switch w.IntN(11) {
		case 9:
			over := w.list()
			return "[" + inner() + "] + " + over + w.loop("map", 1, inner)
		case 10:
			over := w.list()
			return over + w.loop("map", 1, inner) + " + [" + w.choose(inner(), w.value()) + "]"
		case 0:
			return inner()
		case 1:
			return "[" + inner() + ", " + inner() + "]"
		case 2:
			return `{"k": ` + inner() + "}"
		case 3:
			over := w.list()
			return over + w.loop("map", 1, inner)
		case 4:
			over := w.list()
			return over + w.loop("transformList", 2, inner)
		case 5:
			return "(" + w.boolean() + " ? dyn(" + inner() + ") : dyn(" + w.value() + "))"
		case 6:
			return "(" + w.boolean() + " ? " + w.choose(inner(), w.path()) + " : " + w.choose(inner(), w.path()) + ")"
		default:
			return w.value()
		}
	}
	var fields []string
	for _, f := range []string{"a", "b", "c"}[:w.IntN(4)] {
		switch {
		case w.IntN(4) == 0:
			fields = append(fields, "?"+f+": "+w.optional())
		case w.IntN(6) == 0:
			over := w.optional()
			fields = append(fields, "?"+f+": "+over+w.loop("optMap", 1, func() string { return field(name + "." + f) }))
		case w.IntN(8) == 0:
			fields = append(fields, "?"+f+": ("+w.boolean()+" ? optional.of("+field(name+"."+f)+") : optional.none())")
		default:
			fields = append(fields, f+": "+field(name+"."+f))
		}
	}
	return name + "{" + strings.Join(fields, ", ") + "}"
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
			if w.IntN(6) > 0 && (!w.single || depth == 0 || len(m) == 0) {
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

// expression writes one of a type that programs have.
func (w *writer) expression(want Want) string {
	switch want {
	case Bool:
		return w.boolean()
	case Object:
		if w.IntN(4) == 0 {
			return "(" + w.boolean() + " ? " + w.object("Object", 0) + " : Object{})"
		}
		return w.object("Object", 0)
	case anything:
		return w.choose(w.value(), w.list(), w.text(), w.boolean(), w.path())
	}
	return w.patch()
}

// input makes up what expressions read.
func (w *writer) input() (in *Input, all any) {
	request := map[string]any{}
	if w.IntN(4) > 0 {
		request["namespace"] = w.choose("a", "", "lång", "\xff")
	}
	in = &Input{
		Object: w.data(0).(map[string]any), OldObject: w.data(0).(map[string]any), Params: w.data(0).(map[string]any),
		Namespace: map[string]any{"metadata": map[string]any{"name": "shop", "labels": map[string]any{"a": "x", "b": "y"}}},
		Request:   func() map[string]any { return request },
	}
	return in, []any{in.Object, in.OldObject, in.Params, in.Namespace, request}
}

// quickAgainstSlow writes the expressions of a policy and compares both ways to
// evaluate them: values, errors and costs, for budgets that are enough and others.
// It returns how many evaluations the quick way did alone.
func quickAgainstSlow(t *testing.T, env *Env, seed uint64) (quickly int) {
	w := &writer{Rand: rand.New(rand.NewPCG(seed, 0)), metered: seed%4 != 0}
	wants := []Want{Bool, Object, JSONPatch, Bool}
	vars := Vars{Params: true, Variables: true}
	if !w.metered {
		wants = []Want{Bool, TypedPatch}
		vars = Vars{Params: true, Unmetered: true}
	}
	scope := env.Scope(vars)
	if w.metered {
		for _, name := range []string{"v", "u", "s"}[:w.IntN(4)] {
			if scope.Define(name, w.expression(anything)) == nil {
				w.variables = append(w.variables, name)
			}
		}
	}
	var programs []*Program
	for range 3 {
		want := wants[w.IntN(len(wants))]
		// Those that have a wrong type are dropped.
		if p, err := scope.Compile(w.expression(want), want); err == nil && p.reads != 0 {
			programs = append(programs, p)
		}
	}
	show := func() string {
		var lines []string
		for i, v := range scope.variables {
			lines = append(lines, "variables."+scope.variables[i].name+": "+v.program.expr)
		}
		for _, p := range programs {
			lines = append(lines, p.expr)
		}
		return strings.Join(lines, "\n")
	}
	// Loops go over maps in any order: if they end early their cost depends on it, and
	// which of several errors there is.
	early := regexp.MustCompile(`\.(all|exists)\(`).MatchString(show())
	loops := early || regexp.MustCompile(`\.(map|filter|transformList)\(`).MatchString(show())
	w.single = early || loops && w.IntN(3) == 0
	// What one evaluation gave is looked at after all of them: they share their
	// room, but no part of a result.
	type result struct{ in, before, got, want any }
	var results []result
	a := &Activation{}
	for range 6 {
		in, all := w.input()
		before := copied(all)
		budget, slowBudget := Budget{MutationBudget}, Budget{MutationBudget}
		bound, slow := scope.Rebind(a, in, &budget), scope.Bind(in, &slowBudget)
		var total int64
		for _, p := range programs {
			if w.IntN(4) > 0 {
				budget.Remaining, slowBudget.Remaining = MutationBudget, MutationBudget
			} else {
				budget.Remaining = w.Int64N(total + 100)
				slowBudget.Remaining = budget.Remaining
			}
			at := budget.Remaining
			got, ok, err := runQuickly(p, t.Context(), bound)
			if !ok && loops && !w.single {
				break
			}
			if !ok {
				// Both are cel-go then, but variables may have been evaluated quickly.
				got, err = run(p, t.Context(), bound)
			}
			want, wantErr := runSlowly(p, t.Context(), slow)
			if !ok && strings.Contains(errText(err), "join: invalid input") && strings.Contains(errText(wantErr), "join: invalid input") {
				break // it prints maps in any order
			}
			if errText(err) != errText(wantErr) || budget != slowBudget {
				t.Fatalf("seed %d: %s\nprogram %s\n%#v\ncel-go: %v, %v, cost %d\nquick way (%v): %v, %v, cost %d", seed, show(), p.expr, all,
					want, wantErr, at-slowBudget.Remaining, ok, got, err, at-budget.Remaining)
			}
			if wantErr != nil && !ok {
				break
			}
			total += at - budget.Remaining
			if ok {
				quickly++
			}
			if wantErr == nil {
				results = append(results, result{all, before, got, want})
			}
		}
	}
	for _, r := range results {
		if diff := cmp.Diff(r.want, r.got, cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("seed %d: %s\nobject, oldObject, params and request %#v (-want +got):\n%s", seed, show(), r.in, diff)
		}
		if diff := cmp.Diff(r.before, r.in, cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("seed %d: %s\nmodified its input:\n%s", seed, show(), diff)
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
