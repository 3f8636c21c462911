package binding

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mapd-project/mapd/pkg/api"
)

// Validate returns all errors for which a server rejects obj, with the server's order and texts
// (spec §1.4; k8s.io/kubernetes pkg/apis/admissionregistration/validation:
// ValidateMutatingAdmissionPolicyBinding). obj must have its defaults.
//
// The policy need not exist: a binding may be created first. The permissions of the user who
// writes the binding are not checked.
func Validate(obj *admissionregistrationv1.MutatingAdmissionPolicyBinding) api.Faults {
	errs := api.ValidateMeta(&obj.ObjectMeta)
	path := field.NewPath("spec")
	if obj.Spec.PolicyName == "" {
		errs = append(errs, field.Required(path.Child("policyName"), ""))
	} else {
		for _, msg := range apivalidation.NameIsDNSSubdomain(obj.Spec.PolicyName, false) {
			errs = append(errs, field.Invalid(path.Child("policyName"), obj.Spec.PolicyName, msg))
		}
	}
	if obj.Spec.ParamRef != nil {
		errs = append(errs, validateParamRef(obj.Spec.ParamRef, path.Child("paramRef"))...)
	}
	if obj.Spec.MatchResources != nil {
		errs = append(errs, api.ValidateMatchResources(obj.Spec.MatchResources, path.Child("matchResources"))...)
	}
	return api.FormFaults(append(errs, api.ValidateReservedName(obj.Name)...)...)
}

// validateParamRef requires exactly one of name and selector. As on a server it does not check
// the namespace; whether one is allowed depends on the parameter's kind.
func validateParamRef(ref *admissionregistrationv1.ParamRef, path *field.Path) field.ErrorList {
	const exclusive = "name and selector are mutually exclusive"
	var errs field.ErrorList
	named, selected := ref.Name != "", ref.Selector != nil
	if named {
		errs = append(errs, api.ValidatePathSegment(ref.Name, path.Child("name"))...)
	}
	if named && selected {
		errs = append(errs, field.Forbidden(path.Child("name"), exclusive))
	}
	if selected {
		errs = append(errs, api.ValidateSelector(ref.Selector, path.Child("selector"))...)
	}
	if named && selected {
		errs = append(errs, field.Forbidden(path.Child("selector"), exclusive))
	}
	if !named && !selected {
		errs = append(errs, field.Required(path, "one of name or selector must be specified"))
	}

	at := path.Child("parameterNotFoundAction")
	switch action := ref.ParameterNotFoundAction; {
	case action == nil || *action == "":
		errs = append(errs, field.Required(at, ""))
	case *action != admissionregistrationv1.DenyAction && *action != admissionregistrationv1.AllowAction:
		errs = append(errs, field.NotSupported(at, *action,
			[]admissionregistrationv1.ParameterNotFoundActionType{admissionregistrationv1.DenyAction, admissionregistrationv1.AllowAction}))
	}
	return errs
}
