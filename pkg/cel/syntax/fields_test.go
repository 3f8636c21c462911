package syntax_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
	"github.com/mapd-project/mapd/test/hammer"
)

func TestFields(t *testing.T) {
	tests := map[string]struct {
		expr string
		want []string
	}{
		"nested": {
			`Object{spec: Object.spec{replicas: 1}}`,
			[]string{"1:8 spec object", "1:26 spec.replicas int"},
		},
		"several lines, characters beyond ASCII": {
			"Object{\n\tdata: Object.data{\n\t\ta: \"é𝄞\", b : 1}}",
			[]string{"2:2 data object", "3:3 data.a string", "3:12 data.b int"},
		},
		"quoted, optional, with a comment": {
			"Object{?`spec` : optional.of(Object.spec{`x-y`: 1, z // why\n: 2})}",
			[]string{"1:9 spec object conditional", "1:42 spec.x-y int conditional", "2:1 spec.z int conditional"},
		},
		"list items": {
			`Object{spec: Object.spec{containers: [Object.spec.containers{name: "a"}], args: ["a", "b"]}}`,
			[]string{"1:8 spec object", "1:26 spec.containers list[object]", "1:62 spec.containers[].name string", "1:75 spec.args list[string]"},
		},
		"map values": {
			`Object{spec: Object.spec{m: {"k": Object.spec.m{l: []}, string(object.x): Object.spec.m{l: {}}}}}`,
			[]string{"1:8 spec object", "1:26 spec.m map[object]", "1:49 spec.m{k}.l list", "1:89 spec.m{}.l map"},
		},
		"condition": {
			`object.a ? Object{a: true ? 1 : 2} : dyn(1) == 2 ? Object{b: b'x'} : Object{}`,
			[]string{"1:19 a int conditional", "1:59 b bytes conditional"},
		},
		"map macro": {
			`Object{c: object.c.map(x, x.ok, Object.c{n: x.n, p: null}) }`,
			[]string{"1:8 c list[object]", "1:42 c[].n conditional", "1:50 c[].p null conditional"},
		},
		"filter macro": {
			`Object{c: [Object.c{n: 1u}, Object.c{n: 1.5}].filter(x, x.n == 1)}`,
			[]string{"1:8 c list[object]", "1:21 c[].n uint conditional", "1:38 c[].n double conditional"},
		},
		"loops in loops": {
			`Object{c: [[Object.c{n: 1}]].map(a, a.map(b, b))}`,
			[]string{"1:8 c list[list]", "1:22 c[][].n int conditional"},
		},
		"transformList and transformMap": {
			`Object{l: [0].transformList(i, v, Object.l{a: v}), m: {"x": Object.m{b: 1}}.transformMap(k, v, v), n: {"x": 1}.transformMapEntry(k, v, {k: Object.n{c: 1}})}`,
			[]string{"1:8 l list[object]", "1:44 l[].a int conditional", "1:52 m map[object]", "1:70 m{}.b int conditional", "1:100 n map[object]", "1:149 n{}.c int conditional"},
		},
		"optMap and orValue": {
			`Object{?a: object.?x.optMap(x, Object.a{b: x}), c: object.?y.orValue(dyn(["z"]))}`,
			[]string{"1:9 a object conditional", "1:41 a.b conditional", "1:49 c list[string] conditional"},
		},
		"concatenation": {
			`Object{l: object.l + [Object.x{a: 1}], s: "a" + object.s, ll: [1] + [2]}`,
			[]string{"1:8 l list", "1:32 x.a at l[].a int", "1:40 s", "1:59 ll list"},
		},
		"static types": {
			`Object{a: variables.list, b: variables.any, c: request.userInfo.groups, d: dyn([1])}`,
			[]string{"1:8 a list", "1:27 b", "1:45 c list", "1:73 d list[int]"},
		},
		"what is not in the result": {
			`Object{a: size([Object.b{c: 1}]), d: Object.e{f: 1} == Object.e{g: 1}, h: [Object.h{i: 1}].exists(x, has(x.i)), j: type(Object.k{l: 1})}`,
			[]string{"1:8 a", "1:35 d", "1:72 h bool conditional", "1:113 j"},
		},
		"wrong names of types": {
			`Object{metadata: Object.wrong{labels: {"a": "b"}}, spec: Object.spec{l: [Object.l{}]}}`,
			[]string{"1:8 metadata object misnamed Object.wrong", "1:31 wrong.labels at metadata.labels map[string]", "1:52 spec object", "1:70 spec.l list[object] misnamed Object.l"},
		},
		"given twice": {
			`Object{a: "x", ?a: optional.of(2), a: 1, ?a: optional.of(b'')}`,
			[]string{"1:36 a int", "1:43 a bytes conditional"},
		},
		"a literal that ends up in several places": {
			`Object{a: [Object.a{b: 1}].map(x, Object.a{b: x, c: x})}`,
			[]string{
				"1:8 a list[object]", "1:21 a.b at a[].b.b int conditional", "1:21 a.b at a[].c.b int conditional",
				"1:44 a[].b object conditional misnamed Object.a", "1:50 a[].c object conditional misnamed Object.a",
			},
		},
		"nested literals": {
			`Object{a: {"x": {"y": "z"}}, b: [["z"]], c: {"n": null}}`,
			[]string{"1:8 a map[map]", "1:30 b list[list]", "1:42 c map[null]"},
		},
		"shadowed and absolute names": {
			`.Object{a: [1].map(object, object), b: [Object.b{}].map(variables, .variables.list)}`,
			[]string{"1:9 a list[int]", "1:37 b list"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := objectProgram(t, tt.expr)
			var got []string
			for _, f := range p.Fields() {
				got = append(got, formatField(f))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Fields of %s (-want +got):\n%s", tt.expr, diff)
			}
		})
	}
}

func testScope(t testing.TB) *cel.Scope {
	t.Helper()
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return env.Scope(cel.Vars{Params: true, Variables: true})
}

func objectProgram(t testing.TB, expr string) *cel.Program {
	t.Helper()
	s := testScope(t)
	for name, variable := range map[string]string{"list": "[1, 2]", "any": "object.x"} {
		if err := s.Define(name, variable); err != nil {
			t.Fatal(err)
		}
	}
	p, err := s.Compile(expr, cel.Object)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var formNames = []string{"string", "int", "uint", "double", "bool", "bytes", "null", "list", "map", "object"}

func formatForms(forms syntax.Forms) string {
	var out []string
	for i, name := range formNames {
		if forms&(1<<i) != 0 {
			out = append(out, name)
		}
	}
	return strings.Join(out, "|")
}

// formatField writes the place only where it is not the path.
func formatField(f syntax.Field) string {
	var place string
	var names []string
	for _, s := range f.Place {
		switch s.Kind {
		case syntax.Named:
			place += "." + s.Name
			names = append(names, s.Name)
		case syntax.Item:
			place += "[]"
		case syntax.Value:
			place += "{" + s.Name + "}"
		}
	}
	place = strings.TrimPrefix(place, ".")
	out := fmt.Sprintf("%d:%d ", f.Line, f.Column)
	if path := strings.Join(f.Path, "."); path == strings.Join(names, ".") {
		out += place
	} else {
		out += path + " at " + place
	}
	if f.Value != 0 {
		out += " " + formatForms(f.Value)
	}
	if f.Items != 0 {
		out += "[" + formatForms(f.Items) + "]"
	}
	if f.Conditional {
		out += " conditional"
	}
	if f.Misnamed != nil {
		out += " misnamed " + strings.Join(f.Misnamed, ", ")
	}
	return out
}

func TestFieldsOfOthers(t *testing.T) {
	p, err := testScope(t).Compile(`[JSONPatch{op: "add", path: "/a", value: Object.a{b: 1}}]`, cel.JSONPatch)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Fields(); got != nil {
		t.Errorf("Fields of a JSONPatch = %v, want none", got)
	}
}

// The number of places of one literal may be exponential in the length of the
// expression.
func TestFieldsBounded(t *testing.T) {
	hammer.Alone(t)
	expr := `[Object.z{y: 1}]`
	for range 40 {
		expr += `.map(x, {string(object.k): x, "b": x})`
	}
	p := objectProgram(t, `Object{a: `+expr+`}`)
	if got := len(p.Fields()); got == 0 {
		t.Error("found nothing")
	}
}

func FuzzFields(f *testing.F) {
	for _, expr := range []string{
		`Object{}`,
		"Object{\n ?`a-b` : optional.of(Object.x{y: [1, {\"a\": null}]})}",
		`Object{c: object.c.map(x, x.ok, Object.c{n: x.n}) + [Object.c{}]}`,
		`Object{m: {"x": Object.m{b: 1}}.transformMap(k, v, v), ?o: object.?x.optFlatMap(x, optional.of(x)).or(optional.none())}`,
	} {
		f.Add(expr)
	}
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		p, err := env.Scope(cel.Vars{Params: true, Variables: true}).Compile(expr, cel.Object)
		if err != nil {
			return
		}
		lines := strings.Split(expr, "\n")
		fields := p.Fields()
		if diff := cmp.Diff(fields, p.Fields()); diff != "" {
			t.Errorf("%q: a second look differs:\n%s", expr, diff)
		}
		for _, field := range fields {
			if field.Line > len(lines) || field.Column > len([]rune(lines[field.Line-1])) {
				t.Errorf("%q: field %v is at %d:%d", expr, field.Path, field.Line, field.Column)
				continue
			}
			at := string([]rune(lines[field.Line-1])[field.Column-1:])
			name := field.Path[len(field.Path)-1]
			if !strings.HasPrefix(at, name) && !strings.HasPrefix(at, "`"+name) && !strings.HasPrefix(at, ":") {
				t.Errorf("%q: field %v is said to be at %q", expr, field.Path, at)
			}
		}
	})
}
