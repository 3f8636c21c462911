package policy

import (
	"strings"
	"testing"

	"github.com/mapd-project/mapd/pkg/cel"
)

// TestValidateUpdate uses a function that 1.37 runs and does not take into new
// expressions yet: [1].includes(1).
func TestValidateUpdate(t *testing.T) {
	env, err := cel.NewEnv(cel.Options{Version: "1.37"})
	if err != nil {
		t.Fatal(err)
	}
	const (
		newer     = `[1].includes(1)`
		applied   = `{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'a': string([1].includes(1))}}}"}}`
		patched   = `{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/x', value: [1].includes(1)}]"}}`
		condition = `{"name": "c", "expression": "` + newer + `"}`
		variable  = `{"name": "v", "expression": "` + newer + `"}`
		usesOld   = `{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{metadata: Object.metadata{labels: {'a': string(variables.w && [1].includes(1))}}}"}}`
		plain     = `{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/x'}]"}}`
	)
	at := func(field string) string { return "spec." + field + ": Invalid value" }
	tests := map[string]struct {
		old, obj string // fields of the spec
		want     []string
	}{
		"nothing new": {
			old: `"matchConditions": [` + condition + `], "mutations": [` + applied + `]`,
			obj: `"matchConditions": [` + condition + `], "mutations": [` + applied + `]`,
		},
		"a new condition": {
			old:  `"mutations": [` + plain + `]`,
			obj:  `"matchConditions": [` + condition + `], "mutations": [` + plain + `]`,
			want: []string{at("matchConditions[0].expression")},
		},
		"a condition that was there beside a new one": {
			old: `"matchConditions": [` + condition + `], "mutations": [` + plain + `]`,
			obj: `"matchConditions": [` + condition + `, {"name": "d", "expression": "true"}], "mutations": [` + plain + `]`,
		},
		"a condition that was there, padded": {
			old:  `"matchConditions": [{"name": "c", "expression": " ` + newer + `"}], "mutations": [` + plain + `]`,
			obj:  `"matchConditions": [{"name": "c", "expression": " ` + newer + `"}, {"name": "d", "expression": "true"}], "mutations": [` + plain + `]`,
			want: []string{at("matchConditions[0].expression")},
		},
		"conditions under another paramKind that do not compile": {
			old:  `"matchConditions": [{"name": "c", "expression": "nope"}], "mutations": [` + plain + `]`,
			obj:  `"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "matchConditions": [{"name": "c", "expression": "nope"}], "mutations": [` + plain + `]`,
			want: []string{at("matchConditions[0].expression")},
		},
		"conditions alike that do not compile": {
			old: `"matchConditions": [{"name": "c", "expression": "nope"}], "mutations": [` + plain + `]`,
			obj: `"matchConditions": [{"name": "c", "expression": "nope"}], "mutations": [` + plain + `, ` + plain + `]`,
		},
		"a new mutation": {
			old:  `"mutations": [` + plain + `]`,
			obj:  `"mutations": [` + applied + `]`,
			want: []string{at("mutations[0].applyConfiguration.expression")},
		},
		"a mutation that was there, elsewhere": {
			old: `"mutations": [` + applied + `]`,
			obj: `"mutations": [` + plain + `, ` + applied + `]`,
		},
		"a patch that was there": {
			old:  `"mutations": [` + patched + `]`,
			obj:  `"mutations": [` + patched + `]`,
			want: []string{at("mutations[0].jsonPatch.expression")},
		},
		"a variable that was there": {
			old:  `"variables": [` + variable + `], "mutations": [` + plain + `]`,
			obj:  `"variables": [` + variable + `], "mutations": [` + plain + `]`,
			want: []string{at("variables[0].expression")},
		},
		"a kept mutation reads variables": {
			old: `"variables": [{"name": "w", "expression": "true"}], "mutations": [` + usesOld + `]`,
			obj: `"variables": [{"name": "w", "expression": "1 < 2"}], "mutations": [` + usesOld + `]`,
		},
		"a kept mutation reads a variable that does not compile": {
			old:  `"variables": [{"name": "w", "expression": "true"}], "mutations": [` + usesOld + `]`,
			obj:  `"variables": [{"name": "w", "expression": "nope"}], "mutations": [` + usesOld + `]`,
			want: []string{at("variables[0].expression")},
		},
		"all else is checked": {
			old:  `"mutations": [` + plain + `]`,
			obj:  `"mutations": []`,
			want: []string{"spec.mutations: Required value"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			obj := func(fields string) string {
				return `{"apiVersion": "admissionregistration.mapd.dev/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": "p.static.k8s.io"},
					"spec": {"reinvocationPolicy": "Never", "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""],
					"apiVersions": ["v1"], "resources": ["pods"]}]}, ` + fields + `}}`
			}
			before, err := DecodeJSON([]byte(obj(tt.old)))
			if err != nil {
				t.Fatal(err)
			}
			after, err := DecodeJSON([]byte(obj(tt.obj)))
			if err != nil {
				t.Fatal(err)
			}
			errs := ValidateUpdate(after, before, env)
			if len(errs) != len(tt.want) {
				t.Fatalf("ValidateUpdate = %v, want %q", errs, tt.want)
			}
			for i, want := range tt.want {
				if !strings.HasPrefix(errs[i].Error(), want) {
					t.Errorf("error %d = %v, want %s", i, errs[i], want)
				}
			}
		})
	}
}
