package syntax

import (
	"strings"
	"testing"

	"github.com/mapd-project/mapd/test/cases"
)

func TestFormat(t *testing.T) {
	long := strings.Repeat("x", 60)
	tests := map[string]struct{ in, want string }{
		"one line":        {"a&&b   ||!c", "a && b || !c"},
		"literals stay":   {`'it' + r"\d" + b'x' + 0x1F + 1u + 1.0e3`, `'it' + r"\d" + b'x' + 0x1F + 1u + 1.0e3`},
		"lines are taken": {"object.spec\n  .containers\n .all(c,\n c.image != '')", "object.spec.containers.all(c, c.image != '')"},
		"conditions":      {"has(object." + long + ") && has(object.spec." + long + ")", "has(object." + long + ") &&\nhas(object.spec." + long + ")"},
		"conditional": {"has(object." + long + ") ? Object{spec: Object.spec{" + long + ": 1}} : Object{}",
			"has(object." + long + ")\n  ? Object{spec: Object.spec{" + long + ": 1}}\n  : Object{}"},
		"a patch": {"[JSONPatch{op: 'add', path: '/metadata/labels/" + long + "', value: 'a value'}]",
			"[JSONPatch{\n  op: 'add',\n  path: '/metadata/labels/" + long + "',\n  value: 'a value'\n}]"},
		"a comma behind the last": {"[1, 2,]", "[1, 2]"},
		"optionals":               {"object . ? spec[ ?'a' ] . orValue( {?'a':b} )", "object.?spec[?'a'].orValue({?'a': b})"},
		"signs":                   {"- 1 - - a", "-1 - -a"},
		"a comment on top":        {"// why\n\n a  && b", "// why\na && b"},
		"a comment at the end":    {"a  && b // why", "a && b // why"},
		"a comment behind":        {"a // why\n && b", "a && // why\nb"},
		"a comment between":       {"a &&\n\n // why\n b", "a &&\n// why\nb"},
		"comments in a list":      {"[\n// one\n1, // first\n2, // second\n // end\n]", "[\n  // one\n  1, // first\n  2 // second\n  // end\n]"},
		"a comment in a macro":    {"x.all(c, // each\n c > 0)", "x.all(c, // each\n  c > 0\n)"},
		"no comment":              {`"a // b" + 'c'`, `"a // b" + 'c'`},
		"a text of lines":         {"  '''a\n  b'''  +  c", "'''a\n  b''' + c"},
		"lists":                   {"[" + long + "]+(a?[]:[" + long + "])", "[" + long + "] +\n(a ? [] : [" + long + "])"},
		"escaped names":           {"a.`b-c`  == 1", "a.`b-c` == 1"},
		"a type from the root":    {".Object{ }", ".Object{}"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Format(t.Context(), tt.in)
			if err != nil || got != tt.want {
				t.Fatalf("%v\n%s\nwant\n%s", err, got, tt.want)
			}
			checkFormatted(t, tt.in)
		})
	}
	for _, bad := range []string{"", "a &&", "a b", "'x", "f(a,)", strings.Repeat("(", 2000), "a # b", "// only"} {
		if got, err := Format(t.Context(), bad); err == nil {
			t.Errorf("%.20q becomes %q", bad, got)
		}
	}
}

// What would be longer than an expression may be is refused, and the error says so.
func TestFormatTooLong(t *testing.T) {
	_, err := Format(t.Context(), "["+strings.Repeat("[a,b],", 15_000)+"c]")
	if err == nil || !strings.Contains(err.Error(), "exceeds limit") {
		t.Error(err)
	}
}

// checkFormatted fails unless a formatted expression stays as it is when it is formatted
// again. Format itself compares the syntax trees.
func checkFormatted(t *testing.T, expression string) string {
	t.Helper()
	once, err := Format(t.Context(), expression)
	if err != nil {
		return ""
	}
	if strings.Contains(once, " \n") && !strings.Contains(expression, " \n") {
		t.Errorf("blanks at the end of a line:\n%s", once)
	}
	twice, err := Format(t.Context(), once)
	if err != nil || twice != once {
		t.Errorf("of\n%s\nonce\n%s\ntwice (%v)\n%s", expression, once, err, twice)
	}
	return once
}

// caseExpressions returns the expressions of the policies of all cases.
func caseExpressions(t testing.TB) (out []string) {
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for name, e := range v {
				if text, ok := e.(string); ok && name == "expression" {
					out = append(out, text)
				}
				walk(e)
			}
		}
	}
	for _, c := range cases.All(t) {
		for _, p := range c.Policies {
			walk(p.Object)
		}
	}
	return out
}

// The expressions of all cases can be formatted.
func TestFormatCases(t *testing.T) {
	n := 0
	for _, expression := range caseExpressions(t) {
		if once := checkFormatted(t, expression); once != "" {
			n++
		}
	}
	if n < 500 {
		t.Errorf("only %d expressions", n)
	}
}

func FuzzFormat(f *testing.F) {
	for _, expression := range []string{
		"a // c\n && // d\n b", "[ // a\n 1 // b\n , // c\n // d\n ]", "a ? // b\n c : // d\n e ? f : g", "x.map(a, // b\n c)",
		"- // a\n 1", "f( // a\n)", "a // b\n . // c\n d // e\n ( // f\n g // h\n )", "T{ // a\n b // c\n : // d\n e }", "'''\n// a\n''' + \"//\"",
		"a[ // b\n 0 // c\n ]", "!( // a\n b)", "{1: 2, // a\n}", "{ // a\n , // b\n // c\n }",
	} {
		f.Add(expression)
	}
	for i, expression := range caseExpressions(f) {
		if i%10 == 0 {
			f.Add(expression)
		}
	}
	f.Fuzz(func(t *testing.T, expression string) {
		if len(expression) > 2000 {
			return
		}
		if _, err := parseWritten(expression); err != nil {
			return
		}
		if _, err := Format(t.Context(), expression); err != nil && !strings.Contains(err.Error(), "recursion") {
			t.Fatalf("%q: %v", expression, err)
		}
		checkFormatted(t, expression)
	})
}
