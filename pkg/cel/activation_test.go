package cel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/mapd-project/mapd/test/hammer"
)

// counting makes every authorization check count.
func counting(n *int) authorizer.UnconditionalAuthorizer {
	return authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		*n++
		return authorizer.DecisionAllow, "", nil
	})
}

func TestVariablesAreLazy(t *testing.T) {
	s := testScope(t, Vars{Variables: true}, []definition{
		{"check", "authorizer.path('/a').check('get').allowed()"},
		{"fails", "variables.check && object.nosuch"},
		{"chain", "variables.check || variables.fails"},
	})
	tests := map[string]struct {
		exprs  []string // evaluated with one activation
		checks int
		err    string
	}{
		"not touched":              {[]string{"true || variables.check"}, 0, ""},
		"touched twice":            {[]string{"variables.check && variables.check"}, 1, ""},
		"by way of another":        {[]string{"variables.chain && variables.check"}, 1, ""},
		"kept between expressions": {[]string{"variables.check", "variables.check"}, 1, ""},
		"an error is kept too": {[]string{"variables.fails || variables.fails || object.nosuch"}, 1,
			`expression 'variables.fails || variables.fails || object.nosuch' resulted in error: composited variable "fails" fails to evaluate: no such key: nosuch`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := testWorld(t)
			checks := 0
			w.authz = counting(&checks)
			a := s.Bind(w.input(), &Budget{Remaining: MutationBudget})
			var last error
			for _, expr := range tt.exprs {
				p, err := s.Compile(expr, Bool)
				if err != nil {
					t.Fatal(err)
				}
				_, last = p.Bool(t.Context(), a)
			}
			if got := errText(last); got != tt.err {
				t.Errorf("error = %q, want %q", got, tt.err)
			}
			if checks != tt.checks {
				t.Errorf("%d checks, want %d", checks, tt.checks)
			}
		})
	}
	t.Run("a fresh activation computes again", func(t *testing.T) {
		w := testWorld(t)
		checks := 0
		w.authz = counting(&checks)
		p, err := s.Compile("variables.check", Bool)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := p.Bool(t.Context(), s.Bind(w.input(), nil)); err != nil {
				t.Fatal(err)
			}
		}
		if checks != 2 {
			t.Errorf("%d checks, want 2", checks)
		}
	})
}

func TestRequestIsLazy(t *testing.T) {
	s := testScope(t, Vars{}, nil)
	calls := 0
	in := &Input{Request: func() map[string]any { calls++; return map[string]any{"name": "x"} }}
	for _, tt := range []struct {
		expr string
		want int
	}{{"true", 0}, {"object == null", 0}, {"request.name == 'x' && request.name == 'x'", 1}} {
		calls = 0
		p, err := s.Compile(tt.expr, Bool)
		if err != nil {
			t.Fatal(err)
		}
		if ok, err := p.Bool(t.Context(), s.Bind(in, nil)); !ok || err != nil {
			t.Errorf("%s = %v, %v", tt.expr, ok, err)
		}
		if calls != tt.want {
			t.Errorf("%s: request was called %d times, want %d", tt.expr, calls, tt.want)
		}
	}
}

func TestNoAuthorizer(t *testing.T) {
	s := testScope(t, Vars{}, nil)
	for expr, want := range map[string]string{
		"authorizer.path('/a').check('get').allowed()":      "no such attribute(s): authorizer",
		"authorizer.requestResource.check('get').allowed()": "no such attribute(s): authorizer.requestResource",
	} {
		p, err := s.Compile(expr, Bool)
		if err != nil {
			t.Fatal(err)
		}
		want = "expression '" + expr + "' resulted in error: " + want
		if _, err := p.Bool(t.Context(), s.Bind(&Input{}, nil)); errText(err) != want {
			t.Errorf("error = %q, want %q", errText(err), want)
		}
		w := &world{}
		up := newUpstream(t, nil, expr, Bool, false)
		if _, _, inTree, _ := up.eval(t, t.Context(), w, MutationBudget); errText(inTree) != want {
			t.Errorf("in-tree error = %q, want %q", errText(inTree), want)
		}
	}
}

// TestBudget compares what is left with the in-tree plugin, at the edges too.
func TestBudget(t *testing.T) {
	definitions := []definition{
		{"one", "authorizer.path('/a').check('get').allowed()"},
		{"two", "authorizer.path('/b').check('get').allowed()"},
		{"bad", "authorizer.path('/a').check('get').allowed() && object.nosuch"},
		{"dear", "authorizer.path('/a').check('get').allowed() && authorizer.path('/b').check('get').allowed() && authorizer.path('/c').check('get').allowed()"},
		{"constant", "[1, 2, 3].map(x, x * 2).size()"},
	}
	check := func(p string) string { return "authorizer.path('" + p + "').check('get').allowed()" }
	tests := map[string]struct {
		expr   string
		budget int64
	}{
		"two checks":                      {check("/a") + " && " + check("/b"), MutationBudget},
		"three checks":                    {check("/a") + " && " + check("/b") + " && " + check("/c"), MutationBudget},
		"two checks and two in variables": {check("/a") + " && " + check("/b") + " && variables.one && variables.two", MutationBudget},
		"a variable over its limit":       {"variables.dear || true", MutationBudget},
		"exactly enough":                  {check("/a"), 350003},
		"one short":                       {check("/a"), 350002},
		"a variable exactly":              {"variables.one", 350005},
		"a variable, own cost one short":  {"variables.one", 350004},
		"a variable one short":            {"variables.one", 350002},
		"an error within the budget":      {"variables.bad", MutationBudget},
		"an error over the budget":        {"variables.bad", 350000},
		"a constant exactly":              {"[1].size() == 1", 12},
		"a constant one short":            {"[1].size() == 1", 1},
		"constant variables":              {"variables.constant == 6", 1000},
		"constant variables, too dear":    {"variables.constant == 6", 20},
		"nothing left":                    {"true", 0},
		"less than nothing":               {"true", -1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := testWorld(t)
			s := testScope(t, Vars{Variables: true}, definitions)
			want := Bool
			p, err := s.Compile(tt.expr, want)
			if err != nil {
				want = anything
				if p, err = s.Compile(tt.expr, want); err != nil {
					t.Fatal(err)
				}
			}
			up := newUpstream(t, definitions, tt.expr, want, false)
			_, wantCost, wantErr, overBudget := up.eval(t, t.Context(), w, tt.budget)
			wantLeft := tt.budget - wantCost
			if overBudget != nil {
				wantErr, wantLeft = overBudget, -1
			}
			for range 2 {
				b := &Budget{Remaining: tt.budget}
				_, err := run(p, t.Context(), s.Bind(w.input(), b))
				if got, want := errText(err), errText(wantErr); got != want {
					t.Errorf("error = %q\n in-tree %q", got, want)
				}
				if b.Remaining != wantLeft {
					t.Errorf("%d are left, in-tree %d", b.Remaining, wantLeft)
				}
				if (overBudget != nil) != errors.Is(err, ErrBudget) || (overBudget != nil) != errors.Is(err, apiservercel.ErrOutOfBudget) {
					t.Errorf("error = %v, over budget in-tree: %v", err, overBudget)
				}
			}
		})
	}
}

// TestSharedBudget is spec §4.1: conditions share an activation and a budget.
func TestSharedBudget(t *testing.T) {
	s := testScope(t, Vars{}, nil)
	w := testWorld(t)
	b := &Budget{Remaining: ConditionBudget}
	a := s.Bind(w.input(), b)
	p, err := s.Compile("authorizer.path('/a').check('get').allowed() && authorizer.path('/b').check('get').allowed()", Bool)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if ok, err := p.Bool(t.Context(), a); !ok || err != nil {
			t.Fatalf("condition %d = %v, %v", i, ok, err)
		}
	}
	for range 2 {
		if _, err := p.Bool(t.Context(), a); !errors.Is(err, ErrBudget) || b.Remaining != -1 {
			t.Errorf("error = %v with %d left, want %v with -1", err, b.Remaining, ErrBudget)
		}
	}
}

// TestConstant: a program that reads nothing runs once; its cost and that of
// the variables it touches is charged as if it had run.
func TestConstant(t *testing.T) {
	s := testScope(t, Vars{Variables: true}, []definition{
		{"c", "['a', 'b'].map(x, x + x)"}, {"d", "variables.c[0]"}, {"e", "1 / 0"},
	})
	tests := map[string]struct {
		want  Want
		expr  string
		value any
		err   string
		kept  bool
	}{
		"object":          {Object, `Object{a: [1].map(x, x)}`, map[string]any{"a": []any{int64(1)}}, "", true},
		"patch":           {JSONPatch, `[JSONPatch{op: "add", path: "/a", value: variables.d}]`, []PatchOp{{Op: "add", Path: "/a", Value: "aa", HasValue: true}}, "", true},
		"condition":       {Bool, `"b" in variables.c`, false, "", true},
		"error":           {Bool, `variables.e == 1`, nil, `expression 'variables.e == 1' resulted in error: composited variable "e" fails to evaluate: division by zero`, true},
		"wrong type name": {Object, `Object{a: Object.b{}}`, map[string]any(nil), `type mismatch: unexpected type name "Object.b", expected "Object.a", which matches field name path from root Object type`, true},
		"not constant":    {Bool, `object == null`, true, "", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, err := s.Compile(tt.expr, tt.want)
			if err != nil {
				t.Fatal(err)
			}
			var first int64
			for i := range 3 {
				b := &Budget{Remaining: MutationBudget}
				got, err := run(p, t.Context(), s.Bind(&Input{}, b))
				if errText(err) != tt.err {
					t.Errorf("error = %q, want %q", errText(err), tt.err)
				}
				if diff := cmp.Diff(tt.value, got); diff != "" {
					t.Errorf("value (-want +got):\n%s", diff)
				}
				if i == 0 {
					first = b.Remaining
				}
				if b.Remaining != first {
					t.Errorf("use %d leaves %d, the first %d", i, b.Remaining, first)
				}
			}
			if kept := p.constant.Load() != nil; kept != tt.kept {
				t.Errorf("outcome kept: %v, want %v", kept, tt.kept)
			}
			// A variable that something else has touched is not charged again.
			other, err := s.Compile("variables.d == 'aa'", Bool)
			if err != nil {
				t.Fatal(err)
			}
			b := &Budget{Remaining: MutationBudget}
			a := s.Bind(&Input{}, b)
			if _, err := other.Bool(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			before := b.Remaining
			run(p, t.Context(), a)
			own := before - b.Remaining
			if alone := MutationBudget - first; name == "patch" && own >= alone {
				t.Errorf("costs %d after its variable was touched, %d alone", own, alone)
			}
		})
	}
}

func TestInterrupt(t *testing.T) {
	s := testScope(t, Vars{Variables: true}, []definition{{"v", "lists.range(400).map(x, x + size(object)).size()"}})
	for expr, want := range map[string]string{
		"lists.range(400).map(x, x + size(object)).size() == 400": "operation interrupted: no more time",
		"lists.range(400).map(x, x).size() == 400":                "operation interrupted: no more time",
		"variables.v == 400":                                      "operation interrupted: no more time",
	} {
		p, err := s.Compile(expr, Bool)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("no more time"))
		in := &Input{Object: map[string]any{"a": "b"}}
		want = "expression '" + expr + "' resulted in error: " + want
		if _, err := p.Bool(ctx, s.Bind(in, nil)); errText(err) != want {
			t.Errorf("error = %q, want %q", errText(err), want)
		}
		// An interrupted evaluation leaves nothing behind, constants included.
		if ok, err := p.Bool(t.Context(), s.Bind(in, nil)); !ok || err != nil {
			t.Errorf("%s = %v, %v after an interrupt", expr, ok, err)
		}
	}
}

// TestPanic: what panics below cel-go is an error of the expression, and the
// next evaluation works.
func TestPanic(t *testing.T) {
	s := testScope(t, Vars{Variables: true}, []definition{{"v", "authorizer.path('/a').check('get').allowed()"}})
	for _, expr := range []string{"authorizer.path('/a').check('get').allowed()", "variables.v", "[1].all(x, variables.v)"} {
		p, err := s.Compile(expr, Bool)
		if err != nil {
			t.Fatal(err)
		}
		w := testWorld(t)
		sound := w.authz
		for range 3 {
			w.authz = authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
				panic("broken authorizer")
			})
			if _, err := p.Bool(t.Context(), s.Bind(w.input(), nil)); err == nil {
				t.Errorf("%s: no error", expr)
			}
			w.authz = sound
			if ok, err := p.Bool(t.Context(), s.Bind(w.input(), nil)); !ok || err != nil {
				t.Errorf("%s = %v, %v after a panic", expr, ok, err)
			}
		}
	}
}

// TestInputIsNotModified evaluates the whole corpus and looks at the input.
func TestInputIsNotModified(t *testing.T) {
	hammer.Alone(t)
	w := testWorld(t)
	s := testScope(t, Vars{Params: true, Variables: true}, variablesForTests)
	for name, tt := range expressions {
		p, err := s.Compile(tt.expr, tt.want)
		if err != nil {
			t.Fatal(err)
		}
		run(p, t.Context(), s.Bind(w.input(), nil))
		if diff := cmp.Diff(testWorld(t).object, w.object); diff != "" {
			t.Fatalf("%s modified the object:\n%s", name, diff)
		}
	}
}

// TestShared: pieces of the object are handed on, not copied.
func TestShared(t *testing.T) {
	w := testWorld(t)
	s := testScope(t, Vars{}, nil)
	p, err := s.Compile(`Object{a: object.spec.template}`, Object)
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.Object(t.Context(), s.Bind(w.input(), nil))
	if err != nil {
		t.Fatal(err)
	}
	template := w.object["spec"].(map[string]any)["template"].(map[string]any)
	if got := m["a"].(map[string]any); !sameMap(got, template) {
		t.Error("Object copies a piece of the object")
	}
	p, err = s.Compile(`[JSONPatch{op: "add", path: "/a", value: object.spec.template}, JSONPatch{op: "add", path: "/a", value: object.spec}]`, JSONPatch)
	if err != nil {
		t.Fatal(err)
	}
	ops, err := p.JSONPatch(t.Context(), s.Bind(w.input(), nil))
	if err != nil {
		t.Fatal(err)
	}
	if got := ops[0].Value.(map[string]any); !sameMap(got, template) {
		t.Error("JSONPatch copies a piece of the object")
	}
	// spec itself contains an integer that becomes a string.
	if got := ops[1].Value.(map[string]any)["template"].(map[string]any); !sameMap(got, template) {
		t.Error("JSONPatch copies more of the object than changes")
	}
}

func TestHammer(t *testing.T) {
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	shared := env.Scope(Vars{Params: true, Variables: true})
	for _, d := range variablesForTests {
		if err := shared.Define(d.name, d.expr); err != nil {
			t.Fatal(err)
		}
	}
	type job struct {
		expr    string
		want    Want
		program *Program
		outcome string
	}
	w := testWorld(t)
	run := func(s *Scope, p *Program) string {
		b := &Budget{Remaining: MutationBudget}
		got, err := run(p, context.Background(), s.Bind(w.input(), b))
		if p.want != anything {
			return fmt.Sprint(got, b.Remaining, errText(err))
		}
		return fmt.Sprint(b.Remaining, errText(err))
	}
	var jobs []job
	for _, tt := range expressions {
		if tt.want == anything {
			continue
		}
		p, err := shared.Compile(tt.expr, tt.want)
		if err != nil {
			t.Fatal(err)
		}
		// Not p: its outcome is to be kept by one of many.
		first, err := shared.Compile(tt.expr, tt.want)
		if err != nil {
			t.Fatal(err)
		}
		outcome := run(shared, first)
		if again := run(shared, first); again != outcome {
			continue // prints an address
		}
		jobs = append(jobs, job{tt.expr, tt.want, p, outcome})
	}
	var failures atomic.Int32
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range jobs {
				j := jobs[(i+g*7)%len(jobs)]
				if got := run(shared, j.program); got != j.outcome {
					failures.Add(1)
					t.Errorf("%s\n got %s\nwant %s", j.expr, got, j.outcome)
				}
				// A scope of its own: types of variables must not leak from
				// one compilation into another.
				own := env.Scope(Vars{Params: true, Variables: true})
				name := fmt.Sprintf("v%d", g)
				if err := own.Define(name, []string{"1", "'a'"}[g%2]); err != nil {
					t.Error(err)
				}
				if _, err := own.Compile("variables."+name+[]string{" + 1 == 2", " + 'b' == 'ab'"}[g%2], Bool); err != nil {
					t.Error(err)
				}
				if _, err := own.Compile(fmt.Sprintf("variables.v%d == 1", (g+1)%8), Bool); err == nil {
					t.Error("a variable of another scope is known")
				}
				if failures.Load() > 3 {
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestAdd(t *testing.T) {
	if got := add(math.MaxInt64, 1); got != math.MaxInt64 {
		t.Errorf("add overflows to %d", got)
	}
}
