package celgen_test

import (
	"testing"

	"github.com/mapd-project/mapd/internal/celgen"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// Parentheses stand where binding needs them and nowhere else, and what is escaped is read back.
func TestExpr(t *testing.T) {
	a, b, c := celgen.Ident("a"), celgen.Ident("b"), celgen.Ident("c")
	text := celgen.Constant("x")
	for want, e := range map[string]celgen.Expr{
		`(a || b) && c`:                   celgen.All(celgen.AnyOf(a, b), c),
		`a || b && c`:                     celgen.AnyOf(a, celgen.All(b, c)),
		`!(a && b)`:                       celgen.Not(celgen.All(a, b)),
		`a != b`:                          celgen.Not(celgen.Equal(a, b)),
		`a == b`:                          celgen.Not(celgen.Not(celgen.Equal(a, b))),
		`a`:                               celgen.All(celgen.True, a, a),
		`false`:                           celgen.All(a, celgen.False),
		`true`:                            celgen.AnyOf(a, celgen.True),
		`(a ? b : c) ? b : c`:             celgen.Cond(celgen.Cond(a, b, c), b, c),
		`a ? (b ? a : c) : b ? a : c`:     celgen.Cond(a, celgen.Cond(b, a, c), celgen.Cond(b, a, c)),
		`(a + b).size()`:                  celgen.Call(celgen.Sum(a, b), "size"),
		`a["b-c"]`:                        celgen.Field(a, "b-c"),
		`a[?"in"]`:                        celgen.Optional(a, "in"),
		`a.?b`:                            celgen.Optional(a, "b"),
		`has(a.b)`:                        celgen.Has(a, "b"),
		`"b-c" in a`:                      celgen.Has(a, "b-c"),
		`"xx" + a + "x"`:                  celgen.Sum(text, text, a, text),
		`["x", "x"]`:                      celgen.List(text, text),
		`[dyn("x"), dyn(a)]`:              celgen.List(text, a),
		`[dyn("x"), a]`:                   celgen.List(text, a.As("dyn")),
		`{"name": dyn("n"), "a": dyn(1)}`: celgen.JSON(map[string]any{"a": int64(1), "name": "n"}),
		`[1.0, 2.5]`:                      celgen.Constant([]any{1.0, 2.5}),
		`1`:                               celgen.JSON(1.0),
		`"a\"\\\n\u0000"`:                 celgen.Constant("a\"\\\n\x00"),
		`Object.spec{a: 1, ?b: a}`:        celgen.Message("Object.spec", celgen.Entry{Name: "a", Value: celgen.Constant(int64(1))}, celgen.Entry{Name: "?b", Value: a}),
		`a.transformList(i, x, b, c)`:     celgen.Macro(a, "transformList", []string{"i", "x"}, b, c),
		`a in ["x", "y"]`:                 celgen.Among(a, []string{"x", "y"}),
		`a == "x"`:                        celgen.Among(a, []string{"x"}),
		`b`:                               celgen.When(celgen.True, b, c),
	} {
		if e.Text != want {
			t.Errorf("%s, want %s", e, want)
		}
		if _, err := syntax.Format(t.Context(), e.Text); err != nil {
			t.Errorf("%s: %v", e, err)
		}
	}
}

// Whatever a constant holds is read back from what is written for it.
func FuzzConstant(f *testing.F) {
	f.Add("a\"b\\c\n\t\x00\u2028")
	f.Fuzz(func(t *testing.T, s string) {
		e := celgen.Constant(s)
		if got, ok := celgen.Unquoted(e); !ok || celgen.Constant(got).Text != e.Text {
			t.Errorf("%q is written %s, read %q", s, e, got)
		}
	})
}

// Names of match conditions are unique, as a server wants them.
func TestAddCondition(t *testing.T) {
	conds := celgen.AddCondition(nil, "a", "true")
	conds = celgen.AddCondition(conds, "a-2", "true")
	conds = celgen.AddCondition(conds, "a", "false")
	if got := conds[2]; got.Name != "a-3" || got.Expression != "false" {
		t.Errorf("%+v", got)
	}
}
