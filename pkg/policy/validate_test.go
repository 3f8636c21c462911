package policy

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/test/hammer"
)

// row is one document of testdata/validate: a merge patch on the first one and
// what a server says to the result.
type row struct {
	Name  string          `json:"name"`
	Patch json.RawMessage `json:"patch"`
	Want  []string        `json:"want"`
}

func readRows(t testing.TB, file string) (base []byte, rows []row) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, doc := range strings.Split(string(data), "\n---\n") {
		var r row
		if err := yaml.UnmarshalStrict([]byte(doc), &r); err != nil {
			t.Fatalf("document %d: %v", i+1, err)
		}
		rows = append(rows, r)
	}
	return rows[0].Patch, rows[1:]
}

func newEnv(t testing.TB) *cel.Env {
	t.Helper()
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// TestValidate compares the whole answer with the one observed on a server.
func TestValidate(t *testing.T) {
	env := newEnv(t)
	base, rows := readRows(t, "testdata/validate/policies.yaml")
	for _, r := range rows {
		t.Run(r.Name, func(t *testing.T) {
			data, err := jsonpatch.MergePatch(base, r.Patch)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(r.Want, complaints(data, env)); diff != "" {
				t.Errorf("%s\n-server +mapd\n%s", data, diff)
			}
		})
	}
}

func complaints(data []byte, env *cel.Env) []string {
	obj, err := DecodeJSON(data)
	if err != nil {
		return []string{"decode: " + err.Error()}
	}
	var texts []string
	for _, err := range Validate(obj, env) {
		texts = append(texts, err.Error())
	}
	return texts
}

// valid returns the base of the table, for the rows that are too long for it.
func valid(t testing.TB) *admissionregistrationv1.MutatingAdmissionPolicy {
	t.Helper()
	base, _ := readRows(t, "testdata/validate/policies.yaml")
	obj, err := DecodeJSON(base)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func TestValidateLimits(t *testing.T) {
	hammer.Alone(t)
	env := newEnv(t)
	conditions := func(n int) (list []admissionregistrationv1.MatchCondition) {
		for i := range n {
			list = append(list, admissionregistrationv1.MatchCondition{Name: fmt.Sprint("c", i), Expression: "true"})
		}
		return list
	}
	tests := map[string]struct {
		edit func(*admissionregistrationv1.MutatingAdmissionPolicySpec)
		want string // a part of the only error
	}{
		"64 match conditions": {
			edit: func(s *admissionregistrationv1.MutatingAdmissionPolicySpec) { s.MatchConditions = conditions(64) },
		},
		"65 match conditions": {
			edit: func(s *admissionregistrationv1.MutatingAdmissionPolicySpec) { s.MatchConditions = conditions(65) },
			want: `spec.matchConditions: Too many: 65: must have at most 64 items`,
		},
		"100,001 characters": {
			edit: func(s *admissionregistrationv1.MutatingAdmissionPolicySpec) {
				s.Mutations[0].ApplyConfiguration.Expression = "Object{a: '" + strings.Repeat("é", 100_001-13) + "'}"
			},
			want: `compilation failed: ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100001, limit 100000`,
		},
		"100,000 characters": {
			edit: func(s *admissionregistrationv1.MutatingAdmissionPolicySpec) {
				s.Mutations[0].ApplyConfiguration.Expression = "Object{a: '" + strings.Repeat("é", 100_000-13) + "'}"
			},
		},
		"a thousand variables": {
			edit: func(s *admissionregistrationv1.MutatingAdmissionPolicySpec) {
				for i := range 1000 {
					s.Variables = append(s.Variables, admissionregistrationv1.Variable{Name: fmt.Sprint("v", i), Expression: "1"})
				}
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			obj := valid(t)
			tt.edit(&obj.Spec)
			errs := Validate(obj, env)
			if tt.want == "" {
				if len(errs) > 0 {
					t.Fatalf("refused: %v", errs[0])
				}
				return
			}
			if len(errs) != 1 || !strings.Contains(errs[0].Error(), tt.want) {
				t.Fatalf("got %d errors, want one with %q: %.300v", len(errs), tt.want, errs)
			}
		})
	}
}

// Without defaults a server asks for everything that it would have filled in.
func TestValidateWithoutDefaults(t *testing.T) {
	obj := valid(t)
	obj.Spec.FailurePolicy = nil
	m := obj.Spec.MatchConstraints
	m.MatchPolicy, m.NamespaceSelector, m.ObjectSelector, m.ResourceRules[0].Scope = nil, nil, nil, nil
	var got []string
	for _, err := range Validate(obj, newEnv(t)) {
		got = append(got, err.Error())
	}
	want := []string{
		"spec.failurePolicy: Required value",
		"spec.matchConstraints.matchPolicy: Required value",
		"spec.matchConstraints.namespaceSelector: Required value",
		"spec.matchConstraints.objectSelector: Required value",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// This is the one rule that a server does not have.
func TestValidateDuplicateVariables(t *testing.T) {
	obj := valid(t)
	obj.Spec.Variables = []admissionregistrationv1.Variable{
		{Name: "a", Expression: "1"},
		{Name: "b", Expression: "variables.a"},
		{Name: "a", Expression: "variables.b + nope"},
		{Name: "b", Expression: " "},
	}
	var got []string
	for _, err := range Validate(obj, newEnv(t)) {
		got = append(got, err.Error())
	}
	want := []string{
		`spec.variables[2].name: Duplicate value: "a"`,
		`spec.variables[3].name: Duplicate value: "b"`,
		`spec.variables[3].expression: Required value: expression is not specified`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What is stored is held to its form; whether its expressions compile is not
// asked here.
func TestValidateStored(t *testing.T) {
	obj := valid(t)
	obj.Spec.MatchConditions = []admissionregistrationv1.MatchCondition{{Name: "a", Expression: "nope"}}
	obj.Spec.Variables = []admissionregistrationv1.Variable{{Name: "a", Expression: "nope"}, {Name: "in", Expression: "1"}}
	obj.Spec.Mutations[0].JSONPatch, obj.Spec.Mutations[0].ApplyConfiguration = nil, &admissionregistrationv1.ApplyConfiguration{Expression: "nope"}
	obj.Spec.Mutations[0].PatchType = admissionregistrationv1.PatchTypeApplyConfiguration
	obj.Spec.ReinvocationPolicy = "Often"
	var got []string
	for _, err := range ValidateStored(obj) {
		got = append(got, err.Error())
	}
	want := []string{
		`spec.variables[1].name: Invalid value: "in": must be a valid CEL identifier`,
		`spec.reinvocationPolicy: Unsupported value: "Often": supported values: "IfNeeded", "Never"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
