package binding

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	admissionregistrationv1alpha1 "k8s.io/api/admissionregistration/v1alpha1"
	admissionregistrationv1beta1 "k8s.io/api/admissionregistration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
)

// spellings maps each apiVersion of a binding to its Go type, as for policies.
var spellings = api.Spellings{
	api.NativeGroup + "/v1":       func() any { return new(admissionregistrationv1.MutatingAdmissionPolicyBinding) },
	api.NativeGroup + "/v1beta1":  func() any { return new(admissionregistrationv1beta1.MutatingAdmissionPolicyBinding) },
	api.NativeGroup + "/v1alpha1": func() any { return new(admissionregistrationv1alpha1.MutatingAdmissionPolicyBinding) },
	api.OwnGroup + "/v1":          func() any { return new(admissionregistrationv1.MutatingAdmissionPolicyBinding) },
}

// Decode turns a binding in any of its four spellings into the v1 type, with
// the defaults of its version filled in (spec §1.3) and TypeMeta set to native
// v1. It is as strict as policy.Decode and its errors are the same.
func Decode(u *unstructured.Unstructured) (*admissionregistrationv1.MutatingAdmissionPolicyBinding, error) {
	data, err := api.JSON(u)
	if err != nil {
		return nil, err
	}
	return DecodeJSON(data)
}

// DecodeJSON is Decode for JSON text. Unlike Decode it can detect a field that occurs twice,
// which is an error too.
func DecodeJSON(data []byte) (*admissionregistrationv1.MutatingAdmissionPolicyBinding, error) {
	obj, _, err := DecodeNoting(data)
	return obj, err
}

// DecodeNoting is DecodeJSON. It also returns the defaults that only an older version of the
// API fills in, as "field: value": v1 requires these fields.
func DecodeNoting(data []byte) (*admissionregistrationv1.MutatingAdmissionPolicyBinding, []string, error) {
	obj := new(admissionregistrationv1.MutatingAdmissionPolicyBinding)
	gv, err := api.DecodeSpelling(data, api.BindingKind, spellings, obj)
	if err != nil {
		return nil, nil, err
	}
	var older []string
	obj.TypeMeta = metav1.TypeMeta{APIVersion: api.NativeGroup + "/v1", Kind: api.BindingKind}
	obj.Namespace = ""
	api.SetMatchDefaults(obj.Spec.MatchResources)
	// Later versions require this field.
	if ref := obj.Spec.ParamRef; gv.Version == "v1alpha1" && ref != nil && ref.ParameterNotFoundAction == nil {
		ref.ParameterNotFoundAction = new(admissionregistrationv1.ParameterNotFoundActionType)
		*ref.ParameterNotFoundAction = admissionregistrationv1.DenyAction
		older = append(older, "spec.paramRef.parameterNotFoundAction: Deny")
	}
	return obj, older, nil
}
