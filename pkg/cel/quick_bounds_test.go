package cel

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types/ref"
	"github.com/google/go-cmp/cmp"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/mapd-project/mapd/test/hammer"
)

// What the quick way does not know it must not look at twice at each level: at this
// depth compiling would never end.
func TestQuickReadsOnce(t *testing.T) {
	hammer.Alone(t)
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{
		"(true ? %s : object).a",
		"(true ? %s : object)",
		"object[has(%s.a) ? 'a' : 'b']",
		"object[string(%s)]",
		"object[?string(%s)].orValue(1)",
		"object.a.map(x, %s)",
		"dyn(object.a.all(x, dyn(%s) == 1))",
		"dyn([%s].size())",
		"{'a': %s}",
		"object.?a.optMap(x, object.b)[0].or(optional.of(%s)).value()",
	} {
		expr := "duration(object.a)"
		for range 60 {
			expr = fmt.Sprintf(form, "dyn("+expr+")")
		}
		for want, whole := range map[Want]string{Bool: "dyn(%s) == 1", Object: "Object{a: %s}", JSONPatch: "[JSONPatch{op: 'add', path: '/a', value: %s}]"} {
			p, err := env.Scope(Vars{}).Compile(fmt.Sprintf(whole, expr), want)
			if err != nil {
				t.Errorf("%s: %.300v", form, err)
			} else if p.quick != nil {
				t.Errorf("%s is known", form)
			}
		}
	}
}

// sameBothWays evaluates a value both ways and compares all that there is to see.
func sameBothWays(t *testing.T, scope *Scope, expr string, in *Input) (quickly bool) {
	t.Helper()
	p, _, err := scope.compile(expr, anything)
	if err != nil {
		t.Fatal(err)
	}
	full, budget := Budget{MutationBudget}, Budget{MutationBudget}
	want, wantErr := runSlowly(p, t.Context(), scope.Bind(in, &full))
	got, gotErr := run(p, t.Context(), scope.Bind(in, &budget))
	if errText(gotErr) != errText(wantErr) || budget != full {
		t.Errorf("%s: %v, %d left; cel-go %v, %d left", expr, gotErr, budget.Remaining, wantErr, full.Remaining)
	}
	if wantErr == nil && gotErr == nil {
		if diff := cmp.Diff(described(want.(ref.Val)), described(got.(ref.Val))); diff != "" {
			t.Errorf("%s (-cel-go +ours)\n%s", expr, diff)
		}
	}
	_, quickly, _ = runQuickly(p, t.Context(), scope.Bind(in, nil))
	return quickly
}

// Lists and texts that double at each step take no more room than in cel-go.
func TestQuickGrowth(t *testing.T) {
	hammer.Alone(t)
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	in := &Input{Object: map[string]any{"list": []any{"a", "b"}, "text": strings.Repeat("a", 1000)}}
	lists, texts := env.Scope(Vars{Variables: true}), env.Scope(Vars{Variables: true})
	list, text := "object.list.filter(e, true)", "string(object.text)"
	for i := range 50 {
		for scope, of := range map[*Scope]*string{lists: &list, texts: &text} {
			name := fmt.Sprintf("v%d", i)
			if err := scope.Define(name, *of+" + "+*of); err != nil {
				t.Fatal(err)
			}
			*of = "variables." + name
		}
	}
	if sameBothWays(t, lists, list+".size()", in) {
		t.Error("a long list was put together")
	}
	if sameBothWays(t, texts, text+".size()", in) {
		t.Error("a long text was put together")
	}
}

// A variable that is computed when it is first read may be read inside a loop, and
// its own loops must leave that one alone.
func TestQuickLateLoops(t *testing.T) {
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	in := &Input{Object: map[string]any{"a": []any{int64(1), int64(2)}, "b": []any{"x", "y"}}}
	for _, expr := range []string{
		`optional.of(object.a.transformList(i, x, x)).optMap(v, object.b.map(y, [dyn(v.size()), y]))`,
		`optional.of(object.a.map(i, object.a.map(x, x))).optMap(v, object.b.transformList(j, y, [dyn(v), y, j]))`,
		`object.?a.optMap(v, optional.of(v.transformList(i, x, x)).optMap(w, object.b.map(y, [dyn(w), v, y])).value())`,
	} {
		if !sameBothWays(t, env.Scope(Vars{}), expr+".value()", in) {
			t.Errorf("%s was not quick", expr)
		}
	}
}

// Once the quick way was wrong about these.
func TestQuickOnceWrong(t *testing.T) {
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	in := &Input{Object: map[string]any{"s": "text-here", "empty": []any{}, "none": map[string]any{}, "l": []any{"a"}}}
	for _, expr := range []string{
		// An end that is not known is an end.
		`object.s.substring(0, object.s.indexOf("-"))`,
		// What a binding begins with grows if it is empty.
		`object.?empty.optMap(v, (v + [1]).size() + v.size()).value()`,
		`object.?empty.optMap(v, (v + [1]) == v).value()`,
		`object.?none.optMap(v, v).value()`,
	} {
		sameBothWays(t, env.Scope(Vars{}), expr, in)
	}
	for want, exprs := range map[Want][]string{
		Object: {`Object{?a: object.?empty.optMap(v, {"a": dyn(v)})}`},
		// Lists in literals of the patch cannot be converted, data can.
		JSONPatch: {
			`[JSONPatch{op: "add", path: "/a", value: Object.v{a: {"l": ["a"]}}}]`,
			`[JSONPatch{op: "add", path: "/a", value: Object.v{a: {"l": object.l}}}]`,
			`[["a"]].map(x, JSONPatch{op: "add", path: "/a", value: Object.v{a: [[x]]}})`,
			`[[["a"]]].map(x, JSONPatch{op: "add", path: "/a", value: Object.v{a: x}})`,
			`[JSONPatch{op: "add", path: "/a", value: Object.v{a: object.l.map(x, {"l": x})}}]`,
		},
	} {
		for _, expr := range exprs {
			scope := env.Scope(Vars{})
			p, err := scope.Compile(expr, want)
			if err != nil {
				t.Fatal(err)
			}
			got, gotErr := run(p, t.Context(), scope.Bind(in, nil))
			correct, correctErr := runSlowly(p, t.Context(), scope.Bind(in, nil))
			if !reflect.DeepEqual(got, correct) || errText(gotErr) != errText(correctErr) {
				t.Errorf("%s: %v, %v; cel-go %v, %v", expr, got, gotErr, correct, correctErr)
			}
		}
	}
}

// An evaluation may cost as much as the limit, and no more.
func TestQuickLimit(t *testing.T) {
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	scope := env.Scope(Vars{})
	long := strings.Repeat("a", 10*celconfig.PerCallLimit)
	const expr = `"b".startsWith(object.s) || object.n == 1`
	quickly := 0
	for less := range 10 {
		if sameBothWays(t, scope, expr, &Input{Object: map[string]any{"s": long[10*less:], "n": int64(1)}}) {
			quickly++
		}
	}
	if quickly == 0 || quickly == 10 {
		t.Error("the limit is elsewhere")
	}
}

// A list of names that is written out is a set, whatever is looked for in it.
func TestQuickSet(t *testing.T) {
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{"a", "c", "", int64(1), 1.0, true, nil, []any{"a"}, map[string]any{"a": "b"}} {
		for _, set := range []string{`["a", "b"]`, `["a", "a"]`, `["1", ""]`} {
			sameBothWays(t, env.Scope(Vars{}), "object.v in "+set, &Input{Object: map[string]any{"v": v}})
		}
	}
}
