package cel

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// quickExpressions are conditions, and values of an operation.
var quickExpressions = []struct {
	want  Want
	known bool
	expr  string
}{
	{Bool, true, `has(object.metadata.labels)`},
	{Bool, true, `!has(object.metadata.labels) || object.metadata.labels.app == "web"`},
	{Bool, true, `object.?metadata.?labels[?"app"].orValue(null) == params.app && true`},
	{Bool, true, `object.list.exists(e, e.?name.orValue("") == "a" && type(e) == map)`},
	{Bool, true, `object.list.all(e, type(e) != map || has(e.name))`},
	{Bool, true, `params.labels.all(k, object.metadata.labels[k] == params.labels[k])`},
	{Bool, true, `object.n == params.n`},
	{Bool, true, `object.n in params.numbers`},
	{Bool, true, `object.metadata in params.numbers`},
	{Bool, true, `object.kind in params.names`},
	{Bool, true, `request.namespace.startsWith("sh") && !request.namespace.endsWith("x")`},
	{Bool, true, `has(request.namespace)`},
	{Bool, true, `object.none == null && type(object.n) == int && type(object.kind) != list`},
	{Bool, true, `object.missing || true`},
	{Bool, true, `true || object.missing`},
	{Bool, true, `dyn(object.flag ? object.flag : object.kind) == true`},
	{Bool, true, `object.list.exists(object, has(object.name))`},
	{Bool, true, `object.list.exists(e, .object.kind == e.name)`},
	{Bool, true, `params.app == object.nilmap`},
	{Bool, true, `has(object.nilmap.a)`},
	{Bool, true, `has(object.kind.a)`},
	{Bool, true, `object.kind.?a.hasValue()`},
	{Bool, true, `object.?none.hasValue() && !object.?missing.hasValue()`},
	{Bool, true, `params.names.exists(n, n.substring(0, n.size() - 1) == "Po")`},
	{Bool, true, `object.kind.substring(1, 2) == "o" || object.kind.size() - 1 == 2`},
	{Bool, true, `object.list.size() == 2 && size(object.metadata) - 1 == size(params.labels)`},
	{Bool, true, `object.broken.size() == 1 || object.n.size() == 1`},
	{Bool, true, `object.kind.substring(2, 1) == "" || object.kind.substring(0, 9) == ""`},
	{Bool, true, `(object.big - 1 - object.big) == object.big`},
	// The checker takes these for what follows orValue.
	{Bool, true, `string(object[?"n"].orValue("")) == "1"`},
	{Bool, true, `string(object[?"kind"].orValue(0)) == "Pod"`},
	{Bool, false, `string(object[?"kind"].orValue(1.5)) == "Pod"`},
	{Bool, true, `string(object[?"n"].orValue(true)) == "1"`},
	{Bool, true, `object[?"kind"].orValue([]).size() == 3`},
	{Bool, true, `object[?"list"].orValue("").size() == 2`},
	{Bool, false, `object[?"n"].orValue(2.0) - object[?"n"].orValue(2.0) == 0.0`},
	{Bool, true, `object[?"kind"].orValue([]) + object[?"kind"].orValue([]) == []`},
	{Bool, true, `object[?"names"].orValue([1]).reverse().exists(n, n == 2)`},
	{Bool, true, `object[?"kind"].orValue([1]).reverse().exists(n, n == 2)`},
	{Bool, true, `object.list.size() > 1`},
	{Bool, true, `namespaceObject.metadata.name == "shop"`},
	{Bool, true, `object.?kind.optMap(k, k + "x").orValue("") == "Podx"`},

	{TypedPatch, true, `object.kind == "Pod" ? [] : [JSONPatch{op: "remove", path: "/x"}]`},
	{TypedPatch, true, `[JSONPatch{op: "add", path: "/x"}]`},
	{TypedPatch, true, `[JSONPatch{op: "add", path: "/x", value: null}]`},
	{TypedPatch, true, `[JSONPatch{op: "add", path: "/x", value: {"a": dyn([dyn(1), dyn(2.0), params.n, object.n]), "b": dyn({"c": object.metadata})}}]`},
	{TypedPatch, true, `[JSONPatch{op: "add", path: "/x", value: object.list}, JSONPatch{op: "remove", path: "/" + object.kind}]`},
	{TypedPatch, true, `[JSONPatch{op: "add", path: "/x/" + string(object.n), value: object.nilmap}]`},
	{TypedPatch, true, `[JSONPatch{op: "add", path: "/x/" + string(params.n), value: object.broken}]`},
	{TypedPatch, true, `[JSONPatch{op: "add", path: "/x", value: object.broken}]`},
	{TypedPatch, true, `[JSONPatch{op: "add", path: "/x", value: object.odd}]`},
	{TypedPatch, true, `[JSONPatch{op: "add", path: "/x", value: object.kind + "-" + params.app}]`},
	{TypedPatch, true, `[JSONPatch{op: "remove", path: "/long/enough/for/more" + object.kind}, JSONPatch{op: "remove", path: "/x/" + (has(object.kind) ? object.kind + "-" : "none") + "/" + object.kind}]`},
	{TypedPatch, true, `object.list.transformList(i, e, JSONPatch{op: "add", path: "/list/" + string(i) + "/x", value: e})`},
	{TypedPatch, true, `object.list.transformList(i, e, i != 0, [JSONPatch{op: "add", path: "/a/" + string(i), value: i}, JSONPatch{op: "remove", path: "/a/" + string(i)}]).flatten()`},
	{TypedPatch, true, `params.names.map(n, !(n in object.names), JSONPatch{op: "add", path: "/names/-", value: n})`},
	{TypedPatch, true, `object.names.transformList(i, n, n in params.names, i).reverse().map(i, JSONPatch{op: "remove", path: "/names/" + string(i)})`},
	{TypedPatch, true, `has(object.spec) ? [] : [JSONPatch{op: "add", path: "/spec", value: {}}] + object.list.map(e, JSONPatch{op: "test", path: "/"})`},
	{TypedPatch, true, `object.list.map(e, params.names.map(n, JSONPatch{op: "add", path: "/" + n, value: e})).flatten()`},
	{TypedPatch, true, `params.labels.map(k, JSONPatch{op: "add", path: "/" + k, value: k})`},
	{TypedPatch, true, `[JSONPatch{op: "add", path: "/x", value: object.list.filter(e, has(e.name)).map(e, e.name)}]`},
	{TypedPatch, true, `[JSONPatch{op: "add", path: "/x", value: object.missing}]`},
	{TypedPatch, true, `[JSONPatch{op: "add", path: "/" + string(object[?"n"].orValue("x")) + string(object[?"kind"].orValue(1))}]`},
	{TypedPatch, false, `[JSONPatch{op: "move", path: "/x", from: "/y"}]`},
	{TypedPatch, false, `[JSONPatch{op: "add", path: "/x", value: Object{kind: "x"}}]`},
	{TypedPatch, true, `[JSONPatch{op: "add", path: "/x", value: Object{kind: object.kind}}]`},
	{TypedPatch, true, `[JSONPatch{op: "add", path: "/x", value: .Object.x{kind: object.kind}}]`},
	{TypedPatch, false, `[JSONPatch{op: "add", path: "/x", value: google.protobuf.StringValue{value: object.kind}}]`},
	{TypedPatch, false, `[JSONPatch{op: "add", path: "/x", value: google.protobuf.Int64Value{?value: object.?n}}]`},
	{TypedPatch, false, `[JSONPatch{op: "add", path: "/x", value: google.protobuf.Struct{fields: {"a": google.protobuf.Value{string_value: object.kind}}}}]`},
	{TypedPatch, false, `[JSONPatch{op: "add", path: "/x", value: google.protobuf.Duration{seconds: object.n}}]`},
	{TypedPatch, false, `[JSONPatch{op: "add", path: "/x", value: JSONPatch{op: "add", path: object.kind}}]`},
	{TypedPatch, false, `[JSONPatch{op: "add", path: "/x", value: Object.x{kind: google.protobuf.StringValue{value: object.kind}}}]`},
	{TypedPatch, false, `[JSONPatch{op: "add", path: "/x", value: {"a": 1, "a": 2}}]`},
	{TypedPatch, false, `[?optional.of(JSONPatch{op: "add", path: "/x"})]`},
	{TypedPatch, false, `object.list.map(e, [JSONPatch{op: "remove", path: "/a"}])[0]`},
}

func quickInputs() []*Input {
	params := map[string]any{
		"app": "web", "n": 1.0, "numbers": []any{int64(1), 2.0, "3", nil}, "names": []any{"a", "Pod", "b"},
		"labels": map[string]any{"app": "web"},
	}
	request := func() map[string]any { return map[string]any{"namespace": "shop"} }
	full := map[string]any{
		"kind": "Pod", "n": int64(1), "big": int64(-1 << 63), "flag": true, "none": nil, "nilmap": map[string]any(nil), "broken": "\xff", "odd": []any{int32(1)},
		"metadata": map[string]any{"name": "p", "labels": map[string]any{"app": "web"}},
		"list":     []any{map[string]any{"name": "a", "v": 5.0}, map[string]any{"name": "Pod"}},
		"names":    []any{"a", "c", "b"},
	}
	return []*Input{
		{Object: full, Params: params, Request: request},
		{Object: map[string]any{"kind": int64(5), "list": []any{map[string]any{"name": "x"}, "b", nil}, "n": 2.0, "flag": "yes",
			"metadata": []any{}, "names": "a"}, Params: params, Request: func() map[string]any { return map[string]any{} }},
		{Object: map[string]any{"list": map[string]any{"a": "b"}, "metadata": map[string]any{"labels": map[string]any{}}, "names": []any{}}, Params: params},
		{Object: map[string]any{}, Params: map[string]any{}},
		{},
	}
}

// What is evaluated quickly is what cel-go evaluates, errors included; a metered
// program knows no other way.
func TestQuickIsTheSame(t *testing.T) {
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	quickly := 0
	for _, tt := range quickExpressions {
		t.Run(tt.expr, func(t *testing.T) {
			slow, quick := env.Scope(Vars{Params: true}), env.Scope(Vars{Params: true, Unmetered: true})
			want, err := slow.Compile(tt.expr, tt.want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := quick.Compile(tt.expr, tt.want)
			if err != nil {
				t.Fatal(err)
			}
			if known := got.quick != nil; known != tt.known && want.reads != 0 {
				t.Errorf("a quick way is known: %v, want %v", known, tt.known)
			}
			a := &Activation{}
			for i, in := range quickInputs() {
				if tt.want == Bool {
					w, wErr := want.Bool(t.Context(), slow.Bind(in, nil))
					g, gErr := got.Bool(t.Context(), quick.Rebind(a, in, nil))
					if w != g || errText(wErr) != errText(gErr) {
						t.Errorf("input %d: Bool = %v, %v, want %v, %v", i, g, gErr, w, wErr)
					}
					if _, ok, _ := runQuickly(got, t.Context(), a); ok {
						quickly++
					}
					continue
				}
				w, wErr := want.JSONPatch(t.Context(), slow.Bind(in, nil))
				g, gErr := got.JSONPatch(t.Context(), quick.Rebind(a, in, nil))
				if len(w) == 0 && len(g) == 0 {
					w, g = nil, nil
				}
				if diff := cmp.Diff(w, g); diff != "" || errText(wErr) != errText(gErr) {
					t.Errorf("input %d: JSONPatch error = %v, want %v (-want +got):\n%s", i, gErr, wErr, diff)
				}
				if _, ok, _ := runQuickly(got, t.Context(), a); ok {
					quickly++
				}
			}
		})
	}
	if quickly < 50 {
		t.Errorf("only %d evaluations were quick", quickly)
	}
}

// impatient is a context that is over once it was asked a number of times.
type impatient struct {
	context.Context
	patience int
}

func (c *impatient) Err() error {
	if c.patience--; c.patience < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// A quick evaluation ends with its context, in the middle of a loop too, and
// leaves nothing behind in the room that the next one uses.
func TestQuickDeadline(t *testing.T) {
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	scope := env.Scope(Vars{Params: true, Unmetered: true})
	list := make([]any, 10*YieldEvery)
	for i := range list {
		list[i] = int64(i)
	}
	in := &Input{Object: map[string]any{"list": list}}
	a := scope.Bind(in, nil)
	for _, expr := range []string{`object.list.all(e, e != "x")`, `object.list.exists(e, e == "x")`, `"x" in object.list`,
		`object.list.map(e, e).exists(e, e == "x")`, `object.list.exists(e, e == 1 ? "x" in object.list : false)`} {
		p, err := scope.Compile(expr, Bool)
		if err != nil {
			t.Fatal(err)
		}
		want, ok, _ := runQuickly(p, t.Context(), a)
		if !ok {
			t.Fatalf("%s has no quick way", expr)
		}
		for patience := range 5 {
			if _, ok, _ := runQuickly(p, &impatient{t.Context(), patience}, a); ok {
				t.Errorf("%s ends quickly although its time is over after %d looks", expr, patience)
			}
			if got, ok, _ := runQuickly(p, t.Context(), a); !ok || got != want {
				t.Errorf("%s = %v, %v, want %v", expr, got, ok, want)
			}
		}
	}
	p, err := scope.Compile(`object.list.map(e, JSONPatch{op: "remove", path: "/" + string(e) + (object.list[?"a"].hasValue() ? "" : "x")})`, TypedPatch)
	if err != nil {
		t.Fatal(err)
	}
	if ops, ok, _ := runQuickly(p, t.Context(), a); ok {
		t.Errorf("%v, although a list has no names", ops)
	}
	p, err = scope.Compile(`object.list.map(e, JSONPatch{op: "remove", path: "/" + string(e)})`, TypedPatch)
	if err != nil {
		t.Fatal(err)
	}
	for patience := range 5 {
		if _, ok, _ := runQuickly(p, &impatient{t.Context(), patience}, a); ok {
			t.Errorf("a patch is made although its time is over after %d looks", patience)
		}
		v, ok, _ := runQuickly(p, t.Context(), a)
		ops, _ := v.([]PatchOp)
		if !ok || len(ops) != len(list) || ops[0].Path != "/0" {
			t.Fatalf("%d operations, %v; want %d", len(ops), ok, len(list))
		}
	}
}

// Whatever is left of a budget, the same is left after both ways, and both or none
// are over it.
func TestQuickEveryBudget(t *testing.T) {
	scope := testScope(t, Vars{Params: true, Variables: true}, []definition{
		{"n", "size(object.spec.template.spec.containers)"},
		{"names", "object.spec.template.spec.containers.map(c, string(c.name))"},
		{"team", "params.data.team + '-' + variables.names.join('-')"},
		{"text", "'t'"},
	})
	in := testWorld(t).input()
	for _, tt := range []struct {
		want Want
		expr string
	}{
		{Bool, `variables.n > 1 && variables.names.exists(n, n == "b") || variables.team == variables.text`},
		{Object, `Object{metadata: Object.metadata{labels: {"team": variables.team, "n": string(variables.n), "text": variables.text}}}`},
		{JSONPatch, `variables.names.map(n, JSONPatch{op: "add", path: "/" + jsonpatch.escapeKey(n), value: variables.team})`},
	} {
		p, err := scope.Compile(tt.expr, tt.want)
		if err != nil {
			t.Fatal(err)
		}
		full := Budget{MutationBudget}
		if _, done, err := runQuickly(p, t.Context(), scope.Bind(in, &full)); !done || err != nil {
			t.Fatalf("%s: done %v, error %v", tt.expr, done, err)
		}
		for left := range MutationBudget - full.Remaining + 2 {
			budget, slowBudget := Budget{left}, Budget{left}
			got, done, err := runQuickly(p, t.Context(), scope.Bind(in, &budget))
			want, wantErr := runSlowly(p, t.Context(), scope.Bind(in, &slowBudget))
			if !done || err != wantErr || budget != slowBudget {
				t.Errorf("%s with %d: error %v, %d are left, want %v and %d", tt.expr, left, err, budget.Remaining, wantErr, slowBudget.Remaining)
			}
			if diff := cmp.Diff(want, got); err == nil && diff != "" {
				t.Errorf("%s with %d (-want +got):\n%s", tt.expr, left, diff)
			}
		}
	}
}

// A variable that one way computed is good for the other, and paid once.
func TestQuickSharesVariables(t *testing.T) {
	scope := testScope(t, Vars{Params: true, Variables: true}, []definition{
		{"names", "object.spec.template.spec.containers.map(c, string(c.name))"},
		{"spec", "object.spec"},
		{"made", "{'a': [variables.names, ['x']]}"},
		{"sorted", "variables.names.sort()"},
	})
	quickly := `variables.names[0] + variables.made.a[1][0] + string(variables.spec.replicas) == "" || variables.sorted[0] == "a"`
	slowly := `variables.names.sort() == variables.made.a[0] && variables.spec == object.spec && variables.made == {"a": [variables.sorted, ["x"]]}`
	for _, order := range [][]string{{quickly, slowly}, {slowly, quickly}, {slowly, slowly}} {
		a, slow := &Activation{}, &Activation{}
		budget, slowBudget := Budget{ConditionBudget}, Budget{ConditionBudget}
		in := testWorld(t).input()
		scope.Rebind(a, in, &budget)
		scope.Rebind(slow, in, &slowBudget)
		for _, expr := range order {
			p, err := scope.Compile(expr, Bool)
			if err != nil {
				t.Fatal(err)
			}
			got, gotErr := run(p, t.Context(), a)
			want, wantErr := runSlowly(p, t.Context(), slow)
			if got != want || errText(gotErr) != errText(wantErr) || budget != slowBudget {
				t.Errorf("%s\n= %v, %v, %d are left, want %v, %v, %d", expr, got, gotErr, budget.Remaining, want, wantErr, slowBudget.Remaining)
			}
		}
	}
}
