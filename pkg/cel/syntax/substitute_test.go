package syntax_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

func TestSubstitute(t *testing.T) {
	for _, tt := range []struct {
		expression, want string
		paths            [][]string
	}{
		{`params.data.team`, `variables.params.data.team`, [][]string{{"data", "team"}}},
		{`object.spec.x == 1`, `object.spec.x == 1`, nil},
		{"// params\nparams.data[\"a b\"] // é params\n + 'params' + params.?data[?'x'].orValue('')", "// params\nvariables.params.data[\"a b\"] // é params\n + 'params' + variables.params.?data[?'x'].orValue('')", [][]string{{"data", "a b"}, {"data", "x"}}},
		{`has(params.data.a) && params != null`, `has(variables.params.data.a) && variables.params != null`, [][]string{{"data", "a"}, nil}},
		{`params.list.map(params, params + 1)`, `variables.params.list.map(params, params + 1)`, [][]string{{"list"}}},
		{`cel.bind(params, params.a, params.b)`, `cel.bind(params, variables.params.a, params.b)`, [][]string{{"a"}}},
		{`[1, 2].all(i, params, params > 0) && params.a`, `[1, 2].all(i, params, params > 0) && variables.params.a`, [][]string{{"a"}}},
		{`object.params + x.params.params`, `object.params + x.params.params`, nil},
		{`Object{params: params, b: {params: [params[object.k]]}}`, `Object{params: variables.params, b: {variables.params: [variables.params[object.k]]}}`, [][]string{nil, nil, nil}},
		{`"ü𝔘" + params.` + "`a-b`", `"ü𝔘" + variables.params.` + "`a-b`", [][]string{{"a-b"}}},
		{`!params.a && -params.b < 1 ? params.l[0] : params.f()`, `!variables.params.a && -variables.params.b < 1 ? variables.params.l[0] : variables.params.f()`, [][]string{{"a"}, {"b"}, {"l"}, nil}},
	} {
		got, err := syntax.Substitute(tt.expression, "params", "variables.params")
		if err != nil || got != tt.want {
			t.Errorf("%s\nis  %s\nnot %s (%v)", tt.expression, got, tt.want, err)
		}
		found, err := syntax.Occurrences(tt.expression, "params")
		var paths [][]string
		for _, o := range found {
			paths = append(paths, o.Path)
		}
		if err != nil || !reflect.DeepEqual(paths, tt.paths) {
			t.Errorf("%s: reads %q, not %q (%v)", tt.expression, paths, tt.paths, err)
		}
	}
}

func TestSubstituteErrors(t *testing.T) {
	for expression, want := range map[string]string{
		`[1].map(variables, params.a + variables)`:   "a macro has a variable variables",
		`[1].map(params, .params.a + params)`:        ".params, which cannot be replaced",
		`params.`:                                    "Syntax error",
		strings.Repeat("[", 100_001):                 "size exceeds limit",
		strings.Repeat("[", 5000) + "params":         "recursion",
		`params + ` + strings.Repeat("(", 300) + `1`: "recursion",
	} {
		if got, err := syntax.Substitute(expression, "params", "variables.params"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %.40s, %v; want %s", expression, got, err, want)
		}
	}
}
