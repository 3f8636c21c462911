package compile

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// One policy that fails in each phase, and what is known of each fault besides its
// text.
func TestNewPolicy(t *testing.T) {
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	deps := policy.Deps{Env: env, Types: openapi.New(openapi.Builtin())}
	text := func(spec string) []byte {
		return []byte(`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": "p"}, "spec": {` + spec + `}}`)
	}
	const match = `"matchConstraints": {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}, "reinvocationPolicy": "Never", `
	broken := match + `"variables": [{"name": "v", "expression": "nope"}], "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: variables.v}]"}}]`
	type issue struct {
		Phase      api.Phase
		Path       string
		Part       api.Part
		Expression string
		Issues     string
		Undefined  []string
	}
	tests := map[string]struct {
		spec  string
		rules Rules
		want  []issue
	}{
		"decoding":                   {spec: `"x": 1`, want: []issue{{Phase: api.Decoding, Path: "spec.x"}}},
		"the form":                   {spec: match + `"mutations": []`, want: []issue{{Phase: api.Validating, Path: "spec.mutations"}}},
		"the form of what is stored": {spec: match + `"mutations": []`, rules: Stored, want: []issue{{Phase: api.Validating, Path: "spec.mutations"}}},
		"not validated":              {spec: match + `"mutations": []`, rules: Unchecked},
		"an expression of a new policy": {spec: broken, want: []issue{{
			Phase: api.Validating, Path: "spec.variables[0].expression", Part: api.Variables, Expression: "nope",
			Issues: "[{1 1 undeclared reference to 'nope' (in container '')}]",
		}}},
		"an expression of a stored policy": {spec: broken, rules: Stored, want: []issue{{
			Phase: api.Compiling, Path: "spec.variables[0].expression", Part: api.Variables, Expression: "nope",
			Issues: "[{1 1 undeclared reference to 'nope' (in container '')}]",
		}, {
			Phase: api.Compiling, Path: "spec.mutations[0].jsonPatch.expression", Part: api.Mutations, Expression: "[JSONPatch{op: variables.v}]",
			Issues: "[{1 25 undefined field 'v'}]", Undefined: []string{"v"},
		}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := NewPolicy(t.Context(), text(tt.spec), tt.rules, deps)
			if (p.Err == nil) != (p.Program != nil) {
				t.Errorf("program %v besides the error %v", p.Program, p.Err)
			}
			var got []issue
			for _, f := range api.FaultsOf(p.Err) {
				i := issue{f.Phase, f.Path, f.Part, f.Expression, "", f.Undefined}
				if f.Issues != nil {
					i.Issues = fmt.Sprint(f.Issues)
				}
				got = append(got, i)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// What is stored acts although it is not valid; what is to be created does not.
func TestNewBinding(t *testing.T) {
	text := []byte(`{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": "b"}, "spec": {"policyName": "P"}}`)
	for rules, program := range map[Rules]bool{New: false, Stored: true} {
		b := NewBinding(text, rules)
		if b.Err == nil || len(api.FaultsOf(b.Err)) != 1 || api.FaultsOf(b.Err)[0].Path != "spec.policyName" || (b.Program != nil) != program {
			t.Errorf("rules %d: error %v, program %v", rules, b.Err, b.Program)
		}
	}
	if b := NewBinding(text, Unchecked); b.Err != nil || b.Program == nil {
		t.Errorf("unchecked: error %v, program %v", b.Err, b.Program)
	}
	if b := NewBinding([]byte(`{}`), Stored); b.Err == nil || b.Object != nil {
		t.Errorf("no binding: error %v, object %v", b.Err, b.Object)
	}
}
