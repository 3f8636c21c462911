package cel

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"

	"github.com/mapd-project/mapd/test/hammer"
)

var boundsEnv = sync.OnceValues(func() (*Env, error) { return NewEnv(Options{}) })

// testEnv returns an Env that tests share.
func testEnv(t testing.TB) *Env {
	t.Helper()
	env, err := boundsEnv()
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// list returns a list of as many x as a text of n bytes has.
func list(x string, n int) string {
	return "[" + strings.Repeat(x+",", n/(len(x)+1)) + x + "]"
}

// nest returns x between as many opening and closing texts.
func nest(open, x, closing string, depth int) string {
	return strings.Repeat(open, depth) + x + strings.Repeat(closing, depth)
}

// allocated returns how many bytes a function allocates, of all goroutines.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Each of these took a minute and more or gigabytes, or had no end.
func TestBounds(t *testing.T) {
	hammer.Alone(t)
	const (
		steps        = "the types of the policy's expressions need more than 10000000 steps to be checked"
		nodes        = "the expressions of the policy have more than 200000 syntax-tree nodes after macros are expanded"
		instructions = "the regular expressions of the policy have more than 100000 instructions"
	)
	for name, tt := range map[string]struct {
		expr, want string
		line, col  int
	}{
		"optMap":          {"optional.of(1)" + strings.Repeat(".optMap(x, x+x)", 24) + ".orValue(1) == 1", nodes, 1, 217},
		"optMap, lines":   {"optional.of(1)\n" + strings.Repeat(".optMap(x, x+x)", 24), nodes, 2, 203},
		"optFlatMap":      {"optional.of(1)" + strings.Repeat(".optFlatMap(x, optional.of(x))", 24), nodes, 1, 416},
		"optMap, few":     {"optional.of(1)" + strings.Repeat(".optMap(x, x)", 11), steps, 1, 1},
		"types":           {"[1]" + strings.Repeat(".map(x, {x: x})", 40), steps, 1, 1},
		"types of lists":  {list(nest("[", "1", "]", 100), 10_000), steps, 1, 1},
		"type variables":  {list("[1].map(a, a)", 30_000), steps, 1, 1},
		"empty lists":     {list("[]", 30_000), steps, 1, 1},
		"empty maps":      {list("{}", 30_000), steps, 1, 1},
		"conditions":      {list("true ? 1 : 2", 60_000), steps, 1, 1},
		"repetitions":     {"object.a.matches('" + strings.Repeat(".{1000}", 1000) + "')", instructions, 1, 1},
		"classes":         {"object.a.find('" + strings.Repeat(`\\pL`, 20_000) + "')", instructions, 1, 1},
		"classes, global": {"object.a.findAll('(" + strings.Repeat(`[^\\pL\\pN]`, 60) + "){500}')", instructions, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := testEnv(t).Scope(Vars{Variables: true})
			var err error
			bytes := allocated(func() { _, _, err = s.compile(tt.expr, anything) })
			var ce *CompileError
			if !errors.As(err, &ce) || len(ce.Issues) != 1 {
				t.Fatalf("got %v", err)
			}
			if i := ce.Issues[0]; i.Message != tt.want || i.Line != tt.line || i.Column != tt.col {
				t.Errorf("%d:%d: %s\nwant %d:%d: %s", i.Line, i.Column, i.Message, tt.line, tt.col, tt.want)
			}
			// 2 KiB for each node that there may be.
			if bytes > 400<<20 {
				t.Errorf("allocates %d MiB", bytes>>20)
			}
		})
	}
}

// Variables whose types contain each other.
func TestBoundsVariables(t *testing.T) {
	s := testEnv(t).Scope(Vars{Variables: true})
	s.compiling.used.steps = maxSteps - 500_000
	if err := s.Define("v0", "[object]"); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		err := s.Define(fmt.Sprintf("v%d", i+1), fmt.Sprintf("{variables.v%d: variables.v%d}", i, i))
		if err != nil {
			if !strings.Contains(err.Error(), "steps to be checked") || i < 5 {
				t.Errorf("variable %d: %v", i, err)
			}
			return
		}
	}
	t.Error("all of them compile")
}

// What people write is far from every bound.
func TestBoundsLeaveRoom(t *testing.T) {
	hammer.Alone(t)
	s := testEnv(t).Scope(Vars{Variables: true})
	for _, expr := range []string{
		"optional.of(1).optMap(a, a+1).optMap(b, b+1).optMap(c, c+1).optMap(d, d+1).orValue(0)",
		list("object.spec.containers.map(c, has(c.image) ? c.image : 'none').filter(i, i.startsWith('a')).size()", 10_000),
		list("object.metadata.?labels['a'].orValue('').matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$')", 10_000),
		list("{'a': {'b': [{'c': object.d}]}}", 50_000),
		list("object.a == 1 ? 'x' : 'y'", 10_000),
	} {
		if _, _, err := s.compile(expr, anything); err != nil {
			t.Errorf("%.60s…: %v", expr, err)
		}
	}
	if used := s.compiling.used; used.nodes > maxNodes/4 || used.steps > maxSteps/4 || used.instructions > maxInstructions/2 {
		t.Errorf("all of them take %+v", used)
	}
}

// All expressions of a policy share the bounds, also those that are compiled already.
func TestBoundsOfPolicy(t *testing.T) {
	env := testEnv(t)
	const expr = "size([1, 2, 3]) == 3" // 7 nodes
	first, err := env.Scope(Vars{}).Compile(expr, Bool)
	if err != nil {
		t.Fatal(err)
	}
	if first.weight.nodes != 7 {
		t.Fatalf("%d nodes", first.weight.nodes)
	}
	of := env.Within(t.Context())
	conditions, mutations := of.Scope(Vars{}), of.Scope(Vars{Variables: true})
	of.compiling.used.nodes = maxNodes - 2*7
	for i, s := range []*Scope{conditions, mutations, conditions} {
		if _, err := s.Compile(expr, Bool); (err != nil) != (i == 2) {
			t.Errorf("expression %d: %v", i, err)
		}
	}
	if _, err := env.Within(t.Context()).Scope(Vars{}).Compile(expr, Bool); err != nil {
		t.Errorf("another policy: %v", err)
	}
}

// The texts of all errors of a policy are bounded.
func TestBoundsErrors(t *testing.T) {
	env := testEnv(t).Within(t.Context())
	s := env.Scope(Vars{})
	bytes := 0
	for range 5 {
		_, err := s.Compile(list("nosuch", 4000), Bool)
		bytes += len(err.Error())
		if !strings.HasPrefix(err.Error(), "compilation failed: ERROR: <input>:1:2: undeclared reference to 'nosuch'") ||
			!strings.HasSuffix(err.Error(), "\nmore errors are not shown") {
			t.Fatalf("%.100s … %s", err, err.Error()[len(err.Error())-50:])
		}
	}
	if bytes > maxErrors+5*300 {
		t.Errorf("%d bytes of errors", bytes)
	}
}

// patient is an impatient context that can be waited for.
type patient struct{ impatient }

func (c *patient) Done() <-chan struct{} { return make(chan struct{}) }

// Wherever compiling is stopped, the environment is good for the next expression.
func TestInterruptedCompile(t *testing.T) {
	hammer.Alone(t)
	env := testEnv(t)
	// Names that must be looked up, and more than 1024 nodes and code points.
	expr := list("namespaceObject.metadata.name.size()", 8000)
	for looks := 0; ; looks++ {
		ctx := &patient{impatient{t.Context(), looks}}
		_, _, err := env.Within(ctx).Scope(Vars{Variables: true}).compile(expr, anything)
		if err == nil {
			if looks < 10 {
				t.Errorf("looks at its context %d times", looks)
			}
			break
		}
		if !strings.Contains(err.Error(), "compiling was stopped") {
			t.Fatalf("stopped after %d looks: %v", looks, err)
		}
		looks += looks / 8
	}
	if !compiled.TryAcquire(maxNodes) {
		t.Fatal("compiled was not given back")
	}
	compiled.Release(maxNodes)
}

// Every macro counts, and those that copy an operand are known: how much room an
// expression needs is estimated from their names.
func TestMacros(t *testing.T) {
	lang, err := testEnv(t).language(Stored, true, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range lang.env.Macros() {
		if _, ok := m.(countingMacro); !ok {
			t.Errorf("%s does not count", m.MacroKey())
		}
		var args []string
		for i := range m.ArgCount() {
			args = append(args, fmt.Sprintf("a%d", i))
		}
		if m.Function() == "has" {
			args[0] = "a0.b"
		} else if len(args) > 0 {
			args[len(args)-1] = "marker"
		}
		expr := m.Function() + "(" + strings.Join(args, ", ") + ")"
		if m.IsReceiverStyle() {
			expr = "target." + expr
		}
		parsed, err := parse(t.Context(), lang.env, expr)
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		most := 0
		for _, name := range []string{"target", "marker"} {
			n := 0
			ast.PreOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
				if e.Kind() == ast.IdentKind && e.AsIdent() == name {
					n++
				}
			}))
			most = max(most, n)
		}
		known := false
		for _, name := range copyingMacros {
			known = known || m.Function() == name
		}
		if copies := most > 1; copies && !known {
			t.Errorf("%s has an operand %d times and is not among copyingMacros", expr, most)
		}
	}
}

// FuzzBounds writes expressions of all macros and literals that nest.
func FuzzBounds(f *testing.F) {
	hammer.Alone(f)
	for _, seed := range []string{"", "0123456789abcdefghij", "oooooooooooooooooooooooo", "mmmmmmmmmmmmmmmmmm", "\x05\x06\x07\x05\x06\x07\x01\x02", "ABCDABCDABCDABCDABCD"} {
		f.Add([]byte(seed))
	}
	env := testEnv(f)
	lang, err := env.language(Stored, true, false)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		expr := nestedExpr(data[:min(len(data), 24)])
		parsed, err := parse(t.Context(), lang.env, expr)
		if err == nil {
			checkWeight(t, lang, expr, parsed)
		}
		var texts [2]string
		for i := range texts {
			if _, err := env.Scope(Vars{Variables: true}).Compile(expr, Object); err != nil {
				texts[i] = err.Error()
			}
		}
		if texts[0] != texts[1] {
			t.Errorf("%s\n%s\n%s", expr, texts[0], texts[1])
		}
	})
}

// checkWeight holds a weigher against what there is, where it is little enough.
func checkWeight(t *testing.T, lang *language, expr string, parsed *celgo.Ast) {
	nodes := int64(0)
	ast.PreOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(ast.Expr) { nodes++ }))
	w := &weigher{ctx: t.Context(), lang: lang}
	root := w.form(parsed.NativeRep().Expr(), nil)
	if w.nodes != nodes {
		t.Errorf("%s\nhas %d nodes, counted %d", expr, nodes, w.nodes)
	}
	if w.steps > maxSteps/10 || nodes > maxNodes/10 {
		return
	}
	checked, issues, err := lang.checkers[0][1].check(t.Context(), expr, parsed, nil)
	if err != nil || issues.Err() != nil {
		return
	}
	if size := treeSize(checked.GetType(checked.Expr().ID())); size > root.size {
		t.Errorf("%s\nis of type %v of size %d, estimated %d", expr, checked.GetType(checked.Expr().ID()), size, root.size)
	}
}

func treeSize(t *types.Type) int64 {
	n := int64(1)
	for _, p := range t.Parameters() {
		n += treeSize(p)
	}
	return n
}

// nestedExpr returns an expression that grows by one step for each byte.
func nestedExpr(data []byte) string {
	x := "[1]"
	for i, b := range data {
		v := fmt.Sprintf("v%d", i)
		switch b % 20 {
		case 0:
			x = "[" + x + "]"
		case 1:
			x = "{1: " + x + "}"
		case 2:
			x = "{'a': " + x + "}['a']"
		case 3:
			x = x + ".map(" + v + ", " + v + ")"
		case 4:
			x = "[" + x + "].map(" + v + ", {" + v + ": " + v + "})"
		case 5:
			x = "optional.of(" + x + ").optMap(" + v + ", " + v + ").value()"
		case 6:
			x = "optional.of(" + x + ").optFlatMap(" + v + ", optional.of(" + v + ")).value()"
		case 7:
			x = "[" + x + "].filter(" + v + ", true)[0]"
		case 8:
			x = "(true ? " + x + " : " + x + ")"
		case 9:
			x = "[" + x + ", dyn(1)]"
		case 10:
			x = "[" + x + "].transformMap(i, " + v + ", " + v + ")"
		case 11:
			x = "[" + x + "].transformList(i, " + v + ", [" + v + "])"
		case 12:
			x = "[" + x + "].transformMapEntry(i, " + v + ", {i: " + v + "})"
		case 13:
			x = "([" + x + "] + [" + x + "])"
		case 14:
			x = "optional.of(" + x + ").or(optional.none()).orValue(" + x + ")"
		case 15:
			x = "[" + x + "][?0].value()"
		case 16:
			x = "{'a': " + x + "}.?a.value()"
		case 17:
			x = "[" + x + "].all(" + v + ", " + v + " == " + v + ")"
		case 18:
			x = "Object{a: " + x + "}"
		case 19:
			x = "Object{a: Object.a{b: [" + x + "]}}"
		}
		if len(x) > 4000 {
			break
		}
	}
	return x
}
