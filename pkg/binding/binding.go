package binding

import (
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/pkg/api"
)

// Binding is one binding with its rules and selectors parsed. It is immutable
// and may be part of any number of Indexes.
type Binding struct {
	object  *admissionregistrationv1.MutatingAdmissionPolicyBinding
	match   *matcher // nil: no restriction
	params  paramRef
	rollout api.Rollout
}

// Compile parses a binding that was decoded and defaulted.
//
// A selector that does not parse is not an error here: a server that holds such
// a binding reports it only for requests that the binding would otherwise match,
// under the policy's failurePolicy (spec §2.1), and so does Index.SelectInto. Use
// Validate to refuse it early. An error means that the binding can never apply.
func Compile(obj *admissionregistrationv1.MutatingAdmissionPolicyBinding) (*Binding, error) {
	switch {
	case obj == nil:
		return nil, errors.New("no binding given")
	case obj.Name == "":
		return nil, errors.New("binding without a name")
	case obj.Spec.PolicyName == "":
		return nil, fmt.Errorf("binding %q: spec.policyName is empty", obj.Name)
	}
	b := &Binding{object: obj, params: newParamRef(obj.Spec.ParamRef)}
	b.rollout, _ = api.RolloutFor(api.BindingKind, obj.Annotations)
	if obj.Spec.MatchResources != nil {
		b.match = matcherOf(obj.Spec.MatchResources)
	}
	return b, nil
}

// Name returns the binding's name.
func (b *Binding) Name() string { return b.object.Name }

// PolicyName returns the name of the policy that the binding names.
func (b *Binding) PolicyName() string { return b.object.Spec.PolicyName }

// Rollout returns what the binding's annotations say.
func (b *Binding) Rollout() api.Rollout { return b.rollout }

// Object returns the binding as it was compiled. It must not be modified.
func (b *Binding) Object() *admissionregistrationv1.MutatingAdmissionPolicyBinding { return b.object }
