package cel

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// coverageCases have the hits of each point, counted by hand. Each expression is evaluated
// with object.n of 1, 2 and 3, where object.list has the numbers below n and object.opt is
// there for 3 only.
var coverageCases = []struct{ expression, want string }{
	{`object.n > 1`, `expression true 2 false 1`},
	{`object.n > 1 && object.n > 2`, `expression true 1 false 2; operand object.n > 1 true 2 false 1; operand object.n > 2 true 1 false 1`},
	{`object.n > 1 || object.n > 0`, `expression true 3 false 0; operand object.n > 1 true 2 false 1; operand object.n > 0 true 1 false 0`},
	{`(object.n == 1 ? 10 : object.n == 2 ? 20 : 30) > 15`,
		`expression true 2 false 1; condition object.n == 1 true 1 false 2; condition object.n == 2 true 1 false 1`},
	{`object.n == 1 ? object.list == [] : false`, `expression true 1 false 2; condition object.n == 1 true 1 false 2`},
	{`object.?opt.orValue("none") == "none"`, `expression true 2 false 1; optional object.?opt present 1 absent 2`},
	{`object.list.all(i, i > 0)`, `expression true 1 false 2; operand i > 0 true 0 false 2`},
	{`object.list.exists(i, i == 1)`, `expression true 1 false 2; operand i == 1 true 1 false 2`},
	{`object.list.map(i, i + 1) == [1]`, `expression true 1 false 2; body i + 1 run 3`},
	{`object.list.filter(i, i == 0) == [0]`, `expression true 2 false 1; condition i == 0 true 2 false 1`},
	{`object.list.map(i, i > 0, i) == []`, `expression true 2 false 1; condition i > 0 true 1 false 2`},
	{`object.?opt.optMap(o, o + "x").orValue("") == "yx"`,
		`expression true 1 false 2; optional object.?opt.optMap(o, o + "x") present 1 absent 2; optional object.?opt present 1 absent 2`},
	{`[1, ?object.?opt.optMap(o, 2)].size() == 2`,
		`expression true 1 false 2; optional object.?opt.optMap(o, 2) present 1 absent 2; optional object.?opt present 1 absent 2`},
	{`has(object.opt) && object.opt == "y"`, `expression true 1 false 2; operand has(object.opt) true 1 false 2; operand object.opt == "y" true 1 false 0`},
	{`[true, false, true][object.n - 1] && object.n > 0`, `expression true 2 false 1; operand [true, false, true][object.n - 1] true 2 false 1; operand object.n > 0 true 2 false 0`},
	{`object.list[0] == 0 && true`, `expression true 2 false 0; operand object.list[0] == 0 true 2 false 0; operand true true 3 false 0`},
}

func coverageInput(n int) *Input {
	list := []any{}
	for i := range n - 1 {
		list = append(list, int64(i))
	}
	object := map[string]any{"n": int64(n), "list": list}
	if n == 3 {
		object["opt"] = "y"
	}
	return &Input{Object: object}
}

// Coverage is what a person counts, and counting changes neither results nor costs.
func TestCoverage(t *testing.T) {
	counting, err := NewEnv(Options{Observe: true})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range coverageCases {
		a, b := counting.Scope(Vars{}), plain.Scope(Vars{})
		p, err := a.Compile(c.expression, Bool)
		if err != nil {
			t.Error(err)
			continue
		}
		same, err := b.Compile(c.expression, Bool)
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 3; n++ {
			in := coverageInput(n)
			budget, other := &Budget{1000}, &Budget{1000}
			got, gotErr := p.Bool(t.Context(), a.Bind(in, budget))
			want, wantErr := same.Bool(t.Context(), b.Bind(in, other))
			if got != want || fmt.Sprint(gotErr) != fmt.Sprint(wantErr) || *budget != *other {
				t.Errorf("%s with %d: %v, %v, %d left; without coverage %v, %v, %d left", c.expression, n, got, gotErr, budget.Remaining, want, wantErr, other.Remaining)
			}
		}
		var points []string
		for i, point := range p.Coverage().Points() {
			s := string(point.Kind)
			if point.Kind != Whole {
				s += " " + point.Text
			}
			for n, o := range point.Outcomes {
				s += fmt.Sprintf(" %s %d", o, p.Coverage().Hits(i, n))
			}
			points = append(points, s)
		}
		if got := strings.Join(points, "; "); got != c.want {
			t.Errorf("%s\ngot  %s\nwant %s", c.expression, got, c.want)
		}
	}
}

// Policies do not share what they count, and constants count each evaluation.
func TestCoverageOfPolicies(t *testing.T) {
	env, err := NewEnv(Options{Observe: true})
	if err != nil {
		t.Fatal(err)
	}
	hits := func(n int) int64 {
		s := env.Scope(Vars{Variables: true})
		if err := s.Define("x", `1 + 1`); err != nil {
			t.Fatal(err)
		}
		p, err := s.Compile(`[JSONPatch{op: "add", path: "/x", value: variables.x}]`, JSONPatch)
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			if ops, err := p.JSONPatch(t.Context(), s.Bind(coverageInput(1), nil)); err != nil || len(ops) != 1 {
				t.Fatal(ops, err)
			}
		}
		if p.Coverage().Hits(0, 0) != int64(n) {
			t.Errorf("%d of %d evaluations were counted", p.Coverage().Hits(0, 0), n)
		}
		return s.Coverage("x").Hits(0, 0)
	}
	if got := []int64{hits(3), hits(2)}; !slices.Equal(got, []int64{3, 2}) {
		t.Errorf("the variable has %v", got)
	}
	if plain, err := NewEnv(Options{}); err != nil {
		t.Fatal(err)
	} else if p, err := plain.Scope(Vars{}).Compile("true", Bool); err != nil || p.Coverage() != nil {
		t.Error(p, err)
	}
}
