package policy

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
)

// spellings maps each apiVersion of a policy to an empty object of its Go
// type. The types have the same JSON shape; the older ones are kept because
// decoding errors name them.
var spellings = api.Spellings{
	"admissionregistration.k8s.io/v1":       func() any { return new(admissionregistrationv1.MutatingAdmissionPolicy) },
	"admissionregistration.k8s.io/v1beta1":  func() any { return new(admissionregistrationv1beta1.MutatingAdmissionPolicy) },
	"admissionregistration.k8s.io/v1alpha1": func() any { return new(admissionregistrationv1alpha1.MutatingAdmissionPolicy) },
	api.OwnGroup + "/v1":                    func() any { return new(admissionregistrationv1.MutatingAdmissionPolicy) },
}

// Decode converts a policy in any of its four apiVersions into the v1 type, with the defaults
// of its version filled in (spec §1.3) and TypeMeta set to native v1. The result does not
// depend on where the policy came from.
//
// Decoding is strict, as with kubectl's default of fieldValidation: an unknown field or a wrong
// type is an error with the server's text. The status of mapd's own group is accepted and
// dropped, and so is metadata.namespace, which a server clears on cluster-scoped objects. u is
// not modified and shares nothing with the result.
func Decode(u *unstructured.Unstructured) (*admissionregistrationv1.MutatingAdmissionPolicy, error) {
	data, err := api.JSON(u)
	if err != nil {
		return nil, err
	}
	return DecodeJSON(data)
}

// DecodeJSON is Decode for JSON text. Unlike Decode it can detect a field that occurs twice,
// which is an error too.
func DecodeJSON(data []byte) (*admissionregistrationv1.MutatingAdmissionPolicy, error) {
	obj := new(admissionregistrationv1.MutatingAdmissionPolicy)
	if _, err := api.DecodeSpelling(data, api.PolicyKind, spellings, obj); err != nil {
		return nil, err
	}
	obj.TypeMeta = metav1.TypeMeta{APIVersion: api.NativeGroup + "/v1", Kind: api.PolicyKind}
	obj.Namespace = ""
	setDefaults(&obj.Spec)
	return obj, nil
}

// setDefaults fills in the defaults that all versions of the API have
// (k8s.io/kubernetes/pkg/apis/admissionregistration/v1: defaults.go). ReinvocationPolicy has
// none.
func setDefaults(spec *admissionregistrationv1.MutatingAdmissionPolicySpec) {
	if spec.FailurePolicy == nil {
		spec.FailurePolicy = new(admissionregistrationv1.FailurePolicyType)
		*spec.FailurePolicy = admissionregistrationv1.Fail
	}
	api.SetMatchDefaults(spec.MatchConstraints)
}
