package cel

import (
	"runtime"
	"slices"
	"testing"

	"github.com/mapd-project/mapd/test/hammer"
)

// scopeOf is a scope with variables: name and expression, one after the other.
func scopeOf(t *testing.T, env *Env, v Vars, variables ...string) *Scope {
	t.Helper()
	s := env.Scope(v)
	for pair := range slices.Chunk(variables, 2) {
		if err := s.Define(pair[0], pair[1]); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// Two expressions share a program exactly if they cannot mean different things.
func TestSharedPrograms(t *testing.T) {
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := Vars{Params: true, Variables: true}
	base := scopeOf(t, env, all, "a", "1", "b", "variables.a + 1")
	program := func(s *Scope, expr string, want Want) *Program {
		t.Helper()
		p, err := s.Compile(expr, want)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	const patch = `[JSONPatch{op: "add", path: "/a", value: variables.a}]`
	p := program(base, patch, JSONPatch)
	tests := []struct {
		name  string
		scope *Scope
		expr  string
		want  Want
		same  bool
	}{
		{"the same scope", base, patch, JSONPatch, true},
		{"an equal scope", scopeOf(t, env, all, "a", "1", "b", "variables.a + 1"), patch, JSONPatch, true},
		{"another text", base, patch + " ", JSONPatch, false},
		{"another type", base, patch, TypedPatch, false},
		{"another variable", scopeOf(t, env, all, "a", "2", "b", "variables.a + 1"), patch, JSONPatch, false},
		{"fewer variables", scopeOf(t, env, all, "a", "1"), patch, JSONPatch, false},
		{"another order", scopeOf(t, env, all, "b", "1 + 1", "a", "1"), patch, JSONPatch, false},
		{"no params", scopeOf(t, env, Vars{Variables: true}, "a", "1", "b", "variables.a + 1"), patch, JSONPatch, false},
		{"without costs", scopeOf(t, env, Vars{Params: true, Variables: true, Unmetered: true}, "a", "1", "b", "variables.a + 1"), patch, JSONPatch, false},
		{"another mode", scopeOf(t, env, Vars{Params: true, Variables: true, Mode: New}, "a", "1", "b", "variables.a + 1"), patch, JSONPatch, false},
	}
	for _, tt := range tests {
		if got := program(tt.scope, tt.expr, tt.want); (got == p) != tt.same {
			t.Errorf("%s: shared %v, want %v", tt.name, got == p, tt.same)
		}
	}
	if len(base.variables) != 2 || base.variables[0].program != scopeOf(t, env, all, "a", "1", "z", "2").variables[0].program {
		t.Error("a variable that begins two lists is compiled twice")
	}
	runtime.KeepAlive(p)
}

// Nothing is kept that nobody uses.
func TestSharedProgramsGo(t *testing.T) {
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	func() {
		for _, expr := range []string{"true", "false", "1 == 1"} {
			if _, err := env.Scope(Vars{}).Compile(expr, Bool); err != nil {
				t.Fatal(err)
			}
		}
	}()
	count := func() int {
		env.shared.mu.Lock()
		defer env.shared.mu.Unlock()
		return len(env.shared.programs)
	}
	for range 1000 {
		if count() == 0 {
			return
		}
		runtime.GC() // cleanups run some time after it
		runtime.Gosched()
	}
	t.Errorf("%d programs are kept", count())
}

func TestHammerSharedPrograms(t *testing.T) {
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	hammer.Run(8, 20, func(int, int) {
		s := env.Scope(Vars{Variables: true})
		if err := s.Define("a", `"x"`); err != nil {
			t.Error(err)
		}
		p, err := s.Compile(`Object{metadata: Object.metadata{name: variables.a}}`, Object)
		if err != nil {
			t.Error(err)
			return
		}
		if err := s.Define("b", "1"); err != nil {
			t.Error(err)
		}
		got, err := p.Object(t.Context(), s.Bind(&Input{}, nil))
		if err != nil || got["metadata"].(map[string]any)["name"] != "x" {
			t.Errorf("%v, %v", got, err)
		}
		if len(p.Fields()) == 0 {
			t.Error("no fields")
		}
		runtime.GC()
	})
}
