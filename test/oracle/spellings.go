package oracle

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// apiVersions are the spellings of the policy API that mapd takes. Their JSON
// is the same; only the defaults of v1alpha1 differ (spec §1.3).
var apiVersions = map[string]bool{
	"admissionregistration.k8s.io/v1":       true,
	"admissionregistration.k8s.io/v1beta1":  true,
	"admissionregistration.k8s.io/v1alpha1": true,
	"admissionregistration.mapd.dev/v1":     true,
}

// DecodePolicy reads a policy in any spelling and applies the server's
// defaults. It is independent of pkg/policy on purpose.
func DecodePolicy(u *unstructured.Unstructured) (*admissionregistrationv1.MutatingAdmissionPolicy, error) {
	if !apiVersions[u.GetAPIVersion()] {
		return nil, fmt.Errorf("policy %q: apiVersion %q is not known", u.GetName(), u.GetAPIVersion())
	}
	p := &admissionregistrationv1.MutatingAdmissionPolicy{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, p, true); err != nil {
		return nil, fmt.Errorf("policy %q: %w", u.GetName(), err)
	}
	p.APIVersion = admissionregistrationv1.SchemeGroupVersion.String()
	if p.Spec.FailurePolicy == nil {
		p.Spec.FailurePolicy = ptr(admissionregistrationv1.Fail)
	}
	defaultMatchResources(p.Spec.MatchConstraints)
	return p, nil
}

// DecodeBinding is DecodePolicy for bindings.
func DecodeBinding(u *unstructured.Unstructured) (*admissionregistrationv1.MutatingAdmissionPolicyBinding, error) {
	if !apiVersions[u.GetAPIVersion()] {
		return nil, fmt.Errorf("binding %q: apiVersion %q is not known", u.GetName(), u.GetAPIVersion())
	}
	b := &admissionregistrationv1.MutatingAdmissionPolicyBinding{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, b, true); err != nil {
		return nil, fmt.Errorf("binding %q: %w", u.GetName(), err)
	}
	b.APIVersion = admissionregistrationv1.SchemeGroupVersion.String()
	if ref := b.Spec.ParamRef; ref != nil && ref.ParameterNotFoundAction == nil && u.GetAPIVersion() == "admissionregistration.k8s.io/v1alpha1" {
		ref.ParameterNotFoundAction = ptr(admissionregistrationv1.DenyAction)
	}
	defaultMatchResources(b.Spec.MatchResources)
	return b, nil
}

func defaultMatchResources(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	if m.MatchPolicy == nil {
		m.MatchPolicy = ptr(admissionregistrationv1.Equivalent)
	}
	if m.NamespaceSelector == nil {
		m.NamespaceSelector = &metav1.LabelSelector{}
	}
	if m.ObjectSelector == nil {
		m.ObjectSelector = &metav1.LabelSelector{}
	}
	for _, rules := range [][]admissionregistrationv1.NamedRuleWithOperations{m.ResourceRules, m.ExcludeResourceRules} {
		for i := range rules {
			if rules[i].Scope == nil {
				rules[i].Scope = ptr(admissionregistrationv1.AllScopes)
			}
		}
	}
}

func ptr[T any](v T) *T { return &v }
