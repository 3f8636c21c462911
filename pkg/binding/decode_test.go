package binding

import (
	"encoding/json"
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

// Every spelling ends in the same object, but for the one default that only
// v1alpha1 has.
func TestDecodeSpellings(t *testing.T) {
	for _, apiVersion := range []string{
		"admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1", "admissionregistration.k8s.io/v1alpha1",
		"admissionregistration.mapd.dev/v1",
	} {
		t.Run(apiVersion, func(t *testing.T) {
			want := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
				TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingAdmissionPolicyBinding"},
				ObjectMeta: metav1.ObjectMeta{Name: "b"},
				Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
					PolicyName: "p",
					ParamRef:   &admissionregistrationv1.ParamRef{Name: "c", Namespace: "n"},
					MatchResources: &admissionregistrationv1.MatchResources{
						NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
						ObjectSelector:    &metav1.LabelSelector{},
						MatchPolicy:       of(admissionregistrationv1.Equivalent),
						ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
							RuleWithOperations: admissionregistrationv1.RuleWithOperations{
								Rule: admissionregistrationv1.Rule{Resources: []string{"pods"}, Scope: of(admissionregistrationv1.AllScopes)},
							},
						}},
					},
				},
			}
			if strings.HasSuffix(apiVersion, "alpha1") {
				want.Spec.ParamRef.ParameterNotFoundAction = of(admissionregistrationv1.DenyAction)
			}
			object, err := tree.Decode([]byte(`{"apiVersion": "` + apiVersion + `", "kind": "MutatingAdmissionPolicyBinding",
				"metadata": {"name": "b", "namespace": "cleared"},
				"spec": {"policyName": "p", "paramRef": {"name": "c", "namespace": "n"},
					"matchResources": {"namespaceSelector": {"matchLabels": {"a": "b"}}, "resourceRules": [{"resources": ["pods"]}]}}}`))
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
		})
	}
}

func TestDecodeErrors(t *testing.T) {
	tests := map[string]struct{ in, err string }{
		"another kind": {
			in:  `{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy"}`,
			err: `apiVersion "admissionregistration.k8s.io/v1", kind "MutatingAdmissionPolicy": not a MutatingAdmissionPolicyBinding of`,
		},
		"a field twice": {
			in:  `{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": "a", "policyName": "b"}}`,
			err: `strict decoding error: duplicate field "spec.policyName"`,
		},
		"status of the own group": {
			in: `{"apiVersion": "admissionregistration.mapd.dev/v1", "kind": "MutatingAdmissionPolicyBinding", "status": {"x": 1}}`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeJSON([]byte(tt.in))
			switch {
			case tt.err == "" && err != nil:
				t.Fatal(err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Fatalf("DecodeJSON(%s) error = %v, want %s", tt.in, err, tt.err)
			}
		})
	}
	if _, err := Decode(nil); err == nil {
		t.Error("Decode(nil) has no error")
	}
}

// FuzzDecode: no input panics, the same input gives the same answer, and
// neither Validate nor Compile panics over what could be decoded.
func FuzzDecode(f *testing.F) {
	base, rows := readRows(f)
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
		if diff := cmp.Diff(text(Validate(first).ToAggregate()), text(Validate(second).ToAggregate())); diff != "" {
			t.Fatalf("two answers on one input: %s", diff)
		}
		_, _ = Compile(first)
		if data, err := json.Marshal(first); err != nil {
			t.Fatal(err)
		} else if _, err := DecodeJSON(data); err != nil {
			t.Fatalf("DecodeJSON(%s): %v", data, err)
		}
	})
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
