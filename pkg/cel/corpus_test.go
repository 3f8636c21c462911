package cel

import (
	"testing"

	"github.com/google/cel-go/common/types/ref"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/hammer"
)

// corpusProgram is an expression of a case and the input of the case.
type corpusProgram struct {
	name    string
	scope   *Scope
	program *Program
	input   *Input
}

// corpusPrograms compiles what the policies of the case corpus evaluate, the
// variables included; what does not compile is left out.
func corpusPrograms(t *testing.T, env *Env) []corpusProgram {
	t.Helper()
	var out []corpusProgram
	for _, c := range cases.All(t) {
		in := &Input{Object: content(c.Request.Object), OldObject: content(c.Request.OldObject)}
		if len(c.Params) > 0 {
			in.Params = c.Params[0].Object
		}
		if len(c.Namespaces) > 0 {
			in.Namespace = c.Namespaces[0].Object
		}
		in.Request = func() map[string]any {
			return map[string]any{"operation": "CREATE", "namespace": "shop", "name": "web", "userInfo": map[string]any{"username": "ann"}}
		}
		for _, policy := range c.Policies {
			out = append(out, policyPrograms(env, c.Name, policy, in)...)
		}
	}
	return out
}

func content(u *unstructured.Unstructured) map[string]any {
	if u == nil {
		return nil
	}
	return u.Object
}

func policyPrograms(env *Env, name string, policy *unstructured.Unstructured, in *Input) (out []corpusProgram) {
	add := func(s *Scope, expr string, want Want) {
		if p, err := s.Compile(expr, want); err == nil && expr != "" {
			out = append(out, corpusProgram{name, s, p, in})
		}
	}
	entries := func(field string) []map[string]any {
		list, _, _ := unstructured.NestedSlice(policy.Object, "spec", field)
		var maps []map[string]any
		for _, e := range list {
			if m, ok := e.(map[string]any); ok {
				maps = append(maps, m)
			}
		}
		return maps
	}
	text := func(m map[string]any, path ...string) string {
		s, _, _ := unstructured.NestedString(m, path...)
		return s
	}
	_, params, _ := unstructured.NestedMap(policy.Object, "spec", "paramKind")
	conditions := env.Scope(Vars{Params: params})
	for _, c := range entries("matchConditions") {
		add(conditions, text(c, "expression"), Bool)
	}
	mutations := env.Scope(Vars{Params: params, Variables: true})
	for _, v := range entries("variables") {
		if mutations.Define(text(v, "name"), text(v, "expression")) == nil {
			add(mutations, "variables."+text(v, "name"), anything)
		}
	}
	for _, m := range entries("mutations") {
		add(mutations, text(m, "applyConfiguration", "expression"), Object)
		add(mutations, text(m, "jsonPatch", "expression"), JSONPatch)
	}
	return out
}

// TestCorpusIsTheSame evaluates every expression of the case corpus both ways, and
// sees to it that most of them need no cel-go.
func TestCorpusIsTheSame(t *testing.T) {
	hammer.Alone(t)
	env, err := NewEnv(Options{})
	if err != nil {
		t.Fatal(err)
	}
	all, reading, known, quickly := corpusPrograms(t, env), 0, 0, 0
	for _, c := range all {
		for _, left := range []int64{MutationBudget, 50, 3} {
			slowBudget, budget := Budget{left}, Budget{left}
			want, wantErr := runSlowly(c.program, t.Context(), c.scope.Bind(c.input, &slowBudget))
			got, gotErr := run(c.program, t.Context(), c.scope.Bind(c.input, &budget))
			if errText(gotErr) != errText(wantErr) || budget != slowBudget {
				t.Errorf("%s: %s\nerror %v, %d are left\ncel-go %v, %d", c.name, c.program.expr, gotErr, budget.Remaining, wantErr, slowBudget.Remaining)
			}
			if wantErr != nil {
				continue
			}
			if c.program.want == anything {
				want, got = described(want.(ref.Val)), described(got.(ref.Val))
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("%s: %s (-cel-go +ours)\n%s", c.name, c.program.expr, diff)
			}
		}
		if c.program.reads == 0 {
			continue
		}
		reading++
		if c.program.quick != nil {
			known++
		}
		if _, done, _ := runQuickly(c.program, t.Context(), c.scope.Bind(c.input, nil)); done {
			quickly++
		}
	}
	// Many of the others are about what no quick way should know: errors, authorizers,
	// every library.
	t.Logf("of %d expressions %d read something, %d of them are known, %d were quick", len(all), reading, known, quickly)
	if known*100 < reading*70 || quickly*100 < reading*48 {
		t.Errorf("of %d expressions only %d are known and %d were quick", reading, known, quickly)
	}
}
