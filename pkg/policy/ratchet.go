package policy

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mapd-project/mapd/pkg/cel"
)

// ValidateUpdate returns everything for which a server refuses to replace old with obj.
func ValidateUpdate(obj, old *admissionregistrationv1.MutatingAdmissionPolicy, env *cel.Env) field.ErrorList {
	return Validate(obj, env)
}
