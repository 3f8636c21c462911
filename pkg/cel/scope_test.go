package cel

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/pkg/api"
)

func TestCompileError(t *testing.T) {
	tests := map[string]struct {
		expr   string
		want   Want
		issues []api.Issue
		text   string
		render string
	}{
		"syntax": {
			expr: "1 +", want: Bool,
			issues: []api.Issue{{Line: 1, Column: 4, Message: "Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"}},
			text:   "compilation failed: ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | 1 +\n | ...^",
			render: "1:4: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n | 1 +\n |    ^",
		},
		"undeclared, on the second line": {
			expr: "true &&\n\tnosuch == 1", want: Bool,
			issues: []api.Issue{{Line: 2, Column: 2, Message: "undeclared reference to 'nosuch' (in container '')"}},
			text:   "compilation failed: ERROR: <input>:2:2: undeclared reference to 'nosuch' (in container '')\n |  nosuch == 1\n | .^",
			render: "2:2: undeclared reference to 'nosuch' (in container '')\n | \tnosuch == 1\n | \t^",
		},
		"two at once": {
			expr: "'ä' == a || b", want: Bool,
			issues: []api.Issue{{Line: 1, Column: 8, Message: "undeclared reference to 'a' (in container '')"}, {Line: 1, Column: 13, Message: "undeclared reference to 'b' (in container '')"}},
			text:   "compilation failed: ERROR: <input>:1:8: undeclared reference to 'a' (in container '')\n | 'ä' == a || b\n | .．.....^\nERROR: <input>:1:13: undeclared reference to 'b' (in container '')\n | 'ä' == a || b\n | .．..........^",
			render: "1:8: undeclared reference to 'a' (in container '')\n | 'ä' == a || b\n |        ^\n1:13: undeclared reference to 'b' (in container '')\n | 'ä' == a || b\n |             ^",
		},
		"dyn is no bool":    {expr: "object.x", want: Bool, text: "must evaluate to bool but got dyn"},
		"dyn is no Object":  {expr: "object", want: Object, text: "must evaluate to Object but got dyn"},
		"part of an Object": {expr: "Object.spec{}", want: Object, text: "must evaluate to Object but got Object.spec"},
		"empty list":        {expr: "[]", want: JSONPatch, text: "must evaluate to list(JSONPatch) but got list(dyn)"},
		"one patch":         {expr: "JSONPatch{}", want: JSONPatch, text: "must evaluate to list(JSONPatch) but got JSONPatch"},
		"list of dyn":       {expr: "[dyn(JSONPatch{})]", want: JSONPatch, text: "must evaluate to list(JSONPatch) but got list(dyn)"},
		"bad regex":         {expr: "'a'.find('(') == ''", want: Bool, text: "program instantiation failed: error parsing regexp: missing closing ): `(`"},
		"unknown type":      {expr: "type(1) == kubernetes.variables", want: Object, text: "program instantiation failed: reference to undefined type: kubernetes.variables"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := testScope(t, Vars{Variables: true}, nil)
			want := tt.want
			if name == "unknown type" {
				want = anything
			}
			_, err := s.Compile(tt.expr, want)
			var ce *CompileError
			if !errors.As(err, &ce) {
				t.Fatalf("Compile(%q) error = %v, want a *CompileError", tt.expr, err)
			}
			if got, want := ce.Internal, strings.HasPrefix(tt.text, "program instantiation failed"); got != want {
				t.Errorf("Compile(%q): Internal = %v, want %v", tt.expr, got, want)
			}
			if tt.issues == nil {
				tt.issues = []api.Issue{{Line: 1, Column: 1, Message: tt.text}}
				tt.render = "1:1: " + tt.text + "\n | " + tt.expr + "\n | ^"
			}
			if diff := cmp.Diff(tt.issues, ce.Issues); diff != "" {
				t.Errorf("issues (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.text, ce.Error()); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.render, ce.Render()); diff != "" {
				t.Errorf("Render() (-want +got):\n%s", diff)
			}
			// The same text as in-tree.
			up := newUpstream(t, nil, tt.expr, want, false)
			if errs := up.evaluator.CompilationErrors(); len(errs) != 1 || errs[0].Error() != err.Error() {
				t.Errorf("in-tree: %q\n   ours: %q", errs, err)
			}
		})
	}
}

func TestTooLong(t *testing.T) {
	s := testScope(t, Vars{}, nil)
	_, err := s.Compile("'"+strings.Repeat("a", 100_000)+"' == ''", Bool)
	var ce *CompileError
	if !errors.As(err, &ce) {
		t.Fatalf("error = %v, want a *CompileError", err)
	}
	if want := "expression code point size exceeds limit: size: 100008, limit 100000"; len(ce.Issues) != 1 || ce.Issues[0] != (api.Issue{Line: 1, Column: 1, Message: want}) {
		t.Errorf("issues = %v, want %q at 1:1", ce.Issues, want)
	}
}

func TestDefine(t *testing.T) {
	s := testScope(t, Vars{Variables: true}, []definition{{"a", "1"}})
	for name, tt := range map[string]struct{ name, expr, err string }{
		"twice":             {"a", "2", `variable "a" is defined twice`},
		"forward reference": {"b", "variables.c", "undefined field 'c'"},
		"itself":            {"b", "variables.b", "undefined field 'b'"},
		"patch types":       {"b", "Object{}", "undeclared reference to 'Object'"},
		"type of another":   {"b", "variables.a + 'x'", "found no matching overload for '_+_' applied to '(int, string)'"},
		"params":            {"b", "params", "undeclared reference to 'params'"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := s.Define(tt.name, tt.expr); err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("Define(%q, %q) error = %v, want one with %q", tt.name, tt.expr, err, tt.err)
			}
		})
	}
	t.Run("not in conditions", func(t *testing.T) {
		if err := testScope(t, Vars{}, nil).Define("a", "1"); !errors.Is(err, errNoVariables) {
			t.Errorf("error = %v, want %v", err, errNoVariables)
		}
	})
	t.Run("too deep", func(t *testing.T) {
		s := testScope(t, Vars{Variables: true}, []definition{{"v0", "1"}})
		for i := 1; i <= maxVariableDepth; i++ {
			err := s.Define(fmt.Sprintf("v%d", i), fmt.Sprintf("variables.v%d", i-1))
			if i < maxVariableDepth && err != nil {
				t.Fatal(err)
			}
			if i == maxVariableDepth && err == nil {
				t.Errorf("a chain of %d variables is accepted", i+1)
			}
		}
		p, err := s.Compile(fmt.Sprintf("variables.v%d == 1 && has(object.x)", maxVariableDepth-1), Bool)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Bool(t.Context(), s.Bind(&Input{Object: map[string]any{}}, nil)); err != nil {
			t.Error(err)
		}
	})
}

// TestFieldType holds the types that variables have for later expressions,
// which show in the message for a sum that cannot be (spec §5).
func TestFieldType(t *testing.T) {
	tests := map[string]string{
		"1": "int", "1u": "uint", "1.5": "double", "'a'": "string", "b'a'": "bytes", "true": "bool", "null": "null",
		"duration('1s')":                    "duration",
		"timestamp('2026-01-02T03:04:05Z')": "timestamp",
		"[1]":                               "list(int)",
		"[['a']]":                           "list(list(string))",
		"{'a': [1]}":                        "map(string, list(int))",
		"[quantity('1')]":                   "list(dyn)",
	}
	for expr, want := range tests {
		t.Run(expr, func(t *testing.T) {
			s := testScope(t, Vars{Variables: true}, []definition{{"v", expr}})
			_, err := s.Compile("-variables.v == true", Bool)
			if want == "int" || want == "double" {
				_, err = s.Compile("!variables.v", Bool)
			}
			if err == nil || !strings.Contains(err.Error(), "applied to '("+want+")'") {
				t.Errorf("error = %v, want one that says %q", err, want)
			}
		})
	}
	for _, expr := range []string{"object", "optional.of(1)", "quantity('1')", "type(1)", "request.userInfo", "authorizer", "ip('1.2.3.4')"} {
		t.Run("dyn: "+expr, func(t *testing.T) {
			s := testScope(t, Vars{Variables: true}, []definition{{"v", expr}})
			if _, err := s.Compile("variables.v == 1 && variables.v == 'a'", Bool); err != nil {
				t.Errorf("not dyn: %v", err)
			}
		})
	}
}

func TestReads(t *testing.T) {
	s := testScope(t, Vars{Params: true, Variables: true}, []definition{
		{"o", "object.x"}, {"c", "1"}, {"r", "request.name + string(variables.o)"},
	})
	tests := map[string]Reads{
		"1":                                 0,
		"[1].map(x, x)":                     0,
		"variables.c":                       0,
		"object.x":                          ReadsObject,
		"oldObject":                         ReadsOldObject,
		"request.name":                      ReadsRequest,
		"params":                            ReadsParams,
		"namespaceObject.metadata":          ReadsNamespace,
		"authorizer":                        ReadsAuthorizer,
		"authorizer.requestResource":        ReadsAuthorizer,
		"variables.o":                       ReadsObject,
		"variables.r":                       ReadsObject | ReadsRequest,
		"dyn(variables)":                    ReadsObject | ReadsRequest,
		"dyn(variables).c":                  ReadsObject | ReadsRequest,
		"[1].map(object, object)":           ReadsObject, // too much, but safe
		"[1].map(object, .oldObject)":       ReadsOldObject,
		"has(variables.o)":                  ReadsObject,
		"[1].exists(variables, true)":       0,
		"variables.c == 1 && has(params.x)": ReadsParams,
	}
	for expr, want := range tests {
		t.Run(expr, func(t *testing.T) {
			p, err := s.Compile(expr, anything)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.Reads(); got != want {
				t.Errorf("Reads() = %b, want %b", got, want)
			}
		})
	}
}

// Where cel-go panics while it checks an expression, that is an error of the expression.
func TestCompilePanics(t *testing.T) {
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, expr := range []string{`[?dyn(object.a), object.?b][0] == 1`, `{?"a": dyn(object.?a), ?"b": object.?b}.a == 1`} {
		_, err := env.Scope(Vars{}).Compile(expr, Bool)
		var failure *CompileError
		if !errors.As(err, &failure) || !failure.Internal || !strings.Contains(err.Error(), "internal error: ") {
			t.Errorf("Compile(%q) error = %v, want an internal error of the expression", expr, err)
		}
	}
}
