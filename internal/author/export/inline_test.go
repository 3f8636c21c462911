package export

import (
	"context"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// value is the reverse of literal: what the syntax of an expression says.
func value(t *testing.T, scope *cel.Scope, text string) any {
	t.Helper()
	root, err := scope.Syntax(text, cel.Anything)
	if err != nil {
		t.Fatalf("%.200s: %v", text, err)
	}
	var read func(n *syntax.Node) any
	read = func(n *syntax.Node) any {
		switch {
		case n.Kind == syntax.Literal:
			return n.Value
		case n.Kind == syntax.Call && n.Name == "dyn":
			return read(n.Args[0])
		case n.Kind == syntax.List:
			out := []any{}
			for _, a := range n.Args {
				out = append(out, read(a))
			}
			return out
		case n.Kind == syntax.Map:
			out := map[string]any{}
			for i := 0; i < len(n.Args); i += 2 {
				out[read(n.Args[i]).(string)] = read(n.Args[i+1])
			}
			return out
		}
		t.Fatalf("%.200s: has a part that is no literal: %v", text, n)
		return nil
	}
	return read(root)
}

// same checks that v is literal's value, by the syntax and by evaluation.
func same(t *testing.T, env *cel.Env, v any) {
	t.Helper()
	scope := env.Scope(cel.Vars{Params: true})
	defer scope.Done()
	text := literal(v)
	if got := value(t, scope, text); !reflect.DeepEqual(got, v) {
		t.Errorf("%.200s\nis  %#v\nnot %#v", text, got, v)
	}
	program, err := scope.Compile(text+" == params.v", cel.Bool)
	if err != nil {
		t.Fatalf("%.200s: %v", text, err)
	}
	equal, err := program.Bool(context.Background(), scope.Bind(&cel.Input{Params: map[string]any{"v": v}}, &cel.Budget{Remaining: cel.MutationBudget}))
	if err != nil || !equal {
		t.Errorf("%.200s: equals the parameter: %v, %v", text, equal, err)
	}
}

func environment(t testing.TB) *cel.Env {
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return env
}

func TestLiteral(t *testing.T) {
	env := environment(t)
	deep := any("x")
	for i := range 30 {
		if deep = []any{deep}; i%2 == 0 {
			deep = map[string]any{"a": deep, "b": int64(i)}
		}
	}
	var list []any
	for i := range 2000 {
		list = append(list, int64(i))
	}
	for _, v := range []any{
		nil, true, false, "", int64(0), int64(math.MaxInt64), int64(math.MinInt64), int64(1<<53 + 1),
		0.5, 1.0, -1.0, 1e300, 5e-324, -1e-7, math.MaxFloat64, 1e21, float64(1 << 60),
		`"`, `'`, `\`, "`", `${x}`, "{{.}}", "a\nb\r\tc", "\x00\x01\x07\x1b\x7f\u0085", "é ü 🙂 \u2028\u2029 \ufeff \ufffd \U000E0001\U0010FFFF", `"""`, `\u0041`, `r"x"`, "// no comment",
		[]any{}, map[string]any{}, []any{nil}, []any{[]any{}, map[string]any{}}, []any{int64(1), 1.0, "1", true, nil},
		[]any{map[string]any{"a": "x"}, map[string]any{"a": int64(1)}}, []any{[]any{"x"}, []any{}, []any{int64(1)}},
		map[string]any{"in": "x", "null": "y", "true": nil, "": "z", "a.b/c-d": int64(1), "`": "q", "__a__": "u", "\"": "\"", "\n": "n", "package": "p"},
		map[string]any{"a": map[string]any{}, "b": map[string]any{"x": "y"}},
		deep, list, strings.Repeat("ü", 40_000),
	} {
		same(t, env, v)
	}
}

func FuzzLiteral(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x",null,true,{}]}`, `"\u0000\"\\"`, `-9223372036854775808`, `[[],[1]]`, `1e400`, `-0.0`} {
		f.Add(s)
	}
	env := environment(f)
	f.Fuzz(func(t *testing.T, text string) {
		var v any
		if len(text) > 2000 || kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &v) != nil || bounded(v, 20) != nil {
			t.Skip()
		}
		same(t, env, v)
	})
}

func spec(expressions ...string) *admissionregistrationv1.MutatingAdmissionPolicySpec {
	s := &admissionregistrationv1.MutatingAdmissionPolicySpec{ParamKind: &admissionregistrationv1.ParamKind{}}
	for _, e := range expressions {
		s.Mutations = append(s.Mutations, admissionregistrationv1.Mutation{JSONPatch: &admissionregistrationv1.JSONPatch{Expression: e}})
	}
	return s
}

func TestInline(t *testing.T) {
	params := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "x", "uid": "123"}, "data": map[string]any{"a": "1", "b": "2"}, "list": []any{"x"},
	}}
	s := spec("params.data.a", "object.spec", "has(params.list.c) ? params.missing.d : variables.params")
	s.MatchConditions = []admissionregistrationv1.MatchCondition{{Expression: "params.data.b == 'params'"}}
	s.Variables = []admissionregistrationv1.Variable{{Name: "params", Expression: "params.metadata.name"}}
	if err := inline(s, params); err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(s)
	const want = `{"variables":[{"name":"params2","expression":"dyn({\"data\": dyn({\"a\": \"1\"}), \"list\": dyn([\"x\"]), \"metadata\": dyn({\"name\": \"x\"})})"},{"name":"params","expression":"variables.params2.metadata.name"}],` +
		`"mutations":[{"patchType":"","jsonPatch":{"expression":"variables.params2.data.a"}},{"patchType":"","jsonPatch":{"expression":"object.spec"}},` +
		`{"patchType":"","jsonPatch":{"expression":"has(variables.params2.list.c) ? variables.params2.missing.d : variables.params"}}],` +
		`"matchConditions":[{"name":"","expression":"dyn({\"data\": {\"b\": \"2\"}}).data.b == 'params'"}]}`
	if string(got) != want {
		t.Errorf("is\n%s\nnot\n%s", got, want)
	}

	s = spec("params == null ? 1 : 2")
	if err := inline(s, nil); err != nil || s.Variables[0].Expression != "dyn(null)" {
		t.Errorf("%+v, %v", s.Variables, err)
	}
	s = spec("object.spec")
	if err := inline(s, params); err != nil || len(s.Variables) > 0 || s.ParamKind != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestInlineErrors(t *testing.T) {
	deep := any("x")
	for range 100_000 {
		deep = map[string]any{"a": deep}
	}
	for want, tt := range map[string]struct {
		value      any
		expression string
	}{
		"larger than the 100,000 code points":    {strings.Repeat("a", 1<<20), "params.v"},
		"nested deeper than 200 levels":          {deep, "params.v"},
		"of the type []uint8, which is not JSON": {[]byte("x"), "params.v"},
		"of the type uint64, which is not JSON":  {[]any{uint64(1)}, "params.v"},
		"a macro has a variable variables":       {"x", "[1].map(variables, params.v)"},
		"params is read as .params":              {"x", "[1].map(params, .params.v)"},
		"Syntax error":                           {"x", "params."},
	} {
		err := inline(spec(tt.expression), &unstructured.Unstructured{Object: map[string]any{"v": tt.value}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	// What no expression reads may be of any size.
	if err := inline(spec("params.w"), &unstructured.Unstructured{Object: map[string]any{"v": strings.Repeat("a", 1<<20), "w": "x"}}); err != nil {
		t.Error(err)
	}
}
