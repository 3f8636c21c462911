package policy

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/tree"
)

func of[T any](v T) *T { return &v }

// Every spelling ends in the same object, with its defaults.
func TestDecodeSpellings(t *testing.T) {
	want := &admissionregistrationv1.MutatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"a": "b"}},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			ParamKind: &admissionregistrationv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"},
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{},
				ObjectSelector:    &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
				MatchPolicy:       of(admissionregistrationv1.Equivalent),
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{"CREATE"},
						Rule: admissionregistrationv1.Rule{
							APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"},
							Scope: of(admissionregistrationv1.AllScopes),
						},
					},
				}},
				ExcludeResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					ResourceNames: []string{"x"},
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Rule: admissionregistrationv1.Rule{Scope: of(admissionregistrationv1.ClusterScope)},
					},
				}},
			},
			Variables:          []admissionregistrationv1.Variable{{Name: "v", Expression: "1"}},
			MatchConditions:    []admissionregistrationv1.MatchCondition{{Name: "c", Expression: "true"}},
			FailurePolicy:      of(admissionregistrationv1.Fail),
			ReinvocationPolicy: admissionregistrationv1.IfNeededReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{
				{PatchType: "ApplyConfiguration", ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: "Object{}"}},
				{PatchType: "JSONPatch", JSONPatch: &admissionregistrationv1.JSONPatch{Expression: "[JSONPatch{}]"}},
			},
		},
	}
	for _, apiVersion := range []string{
		"admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1", "admissionregistration.k8s.io/v1alpha1",
		"admissionregistration.mapd.dev/v1",
	} {
		t.Run(apiVersion, func(t *testing.T) {
			in := `{"apiVersion": "` + apiVersion + `", "kind": "MutatingAdmissionPolicy",
				"metadata": {"name": "p", "namespace": "cleared", "labels": {"a": "b"}},
				"spec": {
					"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
					"matchConstraints": {
						"objectSelector": {"matchLabels": {"a": "b"}},
						"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
						"excludeResourceRules": [{"resourceNames": ["x"], "scope": "Cluster"}]},
					"variables": [{"name": "v", "expression": "1"}],
					"matchConditions": [{"name": "c", "expression": "true"}],
					"reinvocationPolicy": "IfNeeded",
					"mutations": [
						{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}},
						{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{}]"}}]}}`
			object, err := tree.Decode([]byte(in))
			if err != nil {
				t.Fatal(err)
			}
			got, err := Decode(&unstructured.Unstructured{Object: object})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if again, _ := tree.Decode([]byte(in)); !tree.Equal(object, again) {
				t.Error("Decode modified its argument")
			}
		})
	}
}

// What is given is never replaced by a default.
func TestDecodeKeepsWhatIsGiven(t *testing.T) {
	obj := decodePatched(t, `{"spec": {"failurePolicy": "Ignore", "matchConstraints": {"matchPolicy": "Exact",
		"namespaceSelector": {"matchLabels": {"n": "1"}}, "objectSelector": {"matchLabels": {"o": "1"}},
		"resourceRules": [{"scope": "Namespaced"}]}}}`)
	m := obj.Spec.MatchConstraints
	if *obj.Spec.FailurePolicy != "Ignore" || *m.MatchPolicy != "Exact" || m.NamespaceSelector.MatchLabels["n"] != "1" ||
		m.ObjectSelector.MatchLabels["o"] != "1" || *m.ResourceRules[0].Scope != "Namespaced" {
		t.Errorf("got %+v", obj.Spec)
	}
	if obj := decodePatched(t, `{"spec": null}`); obj.Spec.MatchConstraints != nil || *obj.Spec.FailurePolicy != "Fail" {
		t.Errorf("got %+v", obj.Spec)
	}
}

func decodePatched(t *testing.T, patch string) *admissionregistrationv1.MutatingAdmissionPolicy {
	t.Helper()
	base, _ := readRows(t, "testdata/validate/policies.yaml")
	data, err := jsonpatch.MergePatch(base, []byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	obj, err := DecodeJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

// TestDecodeJSONErrors has what the table of TestValidate cannot: JSON that is
// no merge patch. The strict texts were observed on a server.
func TestDecodeJSONErrors(t *testing.T) {
	const head = `"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", `
	const own = `"apiVersion": "admissionregistration.mapd.dev/v1", "kind": "MutatingAdmissionPolicy", `
	tests := map[string]struct {
		in  string
		err string
	}{
		"empty":             {in: ``, err: "unexpected end of JSON input"},
		"a list":            {in: `[]`, err: "json: cannot unmarshal array into Go value of type"},
		"trailing text":     {in: `{} x`, err: "invalid character 'x' after top-level value"},
		"no apiVersion":     {in: `{"kind": "MutatingAdmissionPolicy"}`, err: `apiVersion "", kind "MutatingAdmissionPolicy": not a MutatingAdmissionPolicy of admissionregistration.k8s.io/v1, admissionregistration.k8s.io/v1alpha1, admissionregistration.k8s.io/v1beta1, admissionregistration.mapd.dev/v1`},
		"another version":   {in: `{"apiVersion": "admissionregistration.k8s.io/v2", "kind": "MutatingAdmissionPolicy"}`, err: `apiVersion "admissionregistration.k8s.io/v2", kind "MutatingAdmissionPolicy": not a`},
		"own group's beta":  {in: `{"apiVersion": "admissionregistration.mapd.dev/v1beta1", "kind": "MutatingAdmissionPolicy"}`, err: `apiVersion "admissionregistration.mapd.dev/v1beta1"`},
		"another kind":      {in: `{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding"}`, err: `kind "MutatingAdmissionPolicyBinding": not a MutatingAdmissionPolicy`},
		"kind is a number":  {in: `{"kind": 1}`, err: `json: cannot unmarshal number into Go struct field .kind of type string`},
		"a name twice":      {in: `{` + head + `"metadata": {"name": "p", "name": "q"}}`, err: `strict decoding error: duplicate field "metadata.name"`},
		"a kind twice":      {in: `{` + head + `"kind": "MutatingAdmissionPolicy"}`, err: `strict decoding error: duplicate field "kind"`},
		"twice and unknown": {in: `{` + head + `"spec": {"failurePolicy": "Fail", "failurePolicy": "Ignore", "foo": 1, "foo": 2}}`, err: `strict decoding error: duplicate field "spec.failurePolicy", unknown field "spec.foo"`},
		"twice in a rule":   {in: `{` + head + `"spec": {"matchConstraints": {"resourceRules": [{"operations": [], "operations": ["CREATE"]}]}}}`, err: `strict decoding error: duplicate field "spec.matchConstraints.resourceRules[0].operations"`},
		"wrong type":        {in: `{` + head + `"spec": {"mutations": [{"patchType": 1}]}}`, err: `json: cannot unmarshal number into Go struct field Mutation.spec.mutations.patchType of type v1.PatchType`},
		"native status":     {in: `{` + head + `"status": {}}`, err: `strict decoding error: unknown field "status"`},
		"own status":        {in: `{` + own + `"status": {"conditions": [{"type": "Ready", "anything": 1}]}}`},
		"own status twice":  {in: `{` + own + `"status": 1, "spec": {"status": 1}}`, err: `strict decoding error: unknown field "spec.status"`},
		"own wrong type":    {in: `{` + own + `"spec": {"variables": "x"}}`, err: `json: cannot unmarshal string into Go struct field MutatingAdmissionPolicySpec.spec.variables of type []v1.Variable`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeJSON([]byte(tt.in))
			if tt.err == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("DecodeJSON(%s) error = %v, want %s", tt.in, err, tt.err)
			}
		})
	}
}

// Trees come from programs too; what cannot be JSON is an error, not a panic.
func TestDecodeOddTrees(t *testing.T) {
	for name, u := range map[string]*unstructured.Unstructured{
		"nil":           nil,
		"nil object":    {},
		"not a number":  {Object: map[string]any{"spec": math.NaN()}},
		"not JSON data": {Object: map[string]any{"spec": func() {}}},
		"empty":         {Object: map[string]any{}},
	} {
		t.Run(name, func(t *testing.T) {
			if obj, err := Decode(u); err == nil {
				t.Errorf("Decode = %+v, want an error", obj)
			}
		})
	}
}

// FuzzDecode: no input panics, the same input gives the same answer, and a
// decoded policy is a fixed point.
func FuzzDecode(f *testing.F) {
	base, rows := readRows(f, "testdata/validate/policies.yaml")
	f.Add(string(base))
	for _, r := range rows {
		if data, err := jsonpatch.MergePatch(base, r.Patch); err == nil {
			f.Add(string(data))
		}
	}
	f.Fuzz(func(t *testing.T, in string) {
		first, err := DecodeJSON([]byte(in))
		second, again := DecodeJSON([]byte(in))
		if diff := cmp.Diff(first, second); diff != "" {
			t.Fatalf("two answers to one input: %s", diff)
		}
		if (err == nil) != (again == nil) || err != nil && err.Error() != again.Error() {
			t.Fatalf("two errors for one input: %v and %v", err, again)
		}
		if err != nil {
			return
		}
		data, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		third, err := DecodeJSON(data)
		if err != nil {
			t.Fatalf("DecodeJSON(%s): %v", data, err)
		}
		// nil and empty are the same in JSON.
		if data2, _ := json.Marshal(third); string(data) != string(data2) {
			t.Fatalf("not a fixed point:\n%s\n%s", data, data2)
		}
	})
}
