package translate

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Bound is one mutator as the engine runs it: a policy that it shares with all
// mutators of its shape, and a binding of its own that hands the mutator to the
// policy as its parameter.
type Bound struct {
	// Shape is a key: mutators with the same shape have deeply equal policies.
	Shape   string
	Policy  *admissionregistrationv1.MutatingAdmissionPolicy
	Binding *admissionregistrationv1.MutatingAdmissionPolicyBinding
}

// Runtime says in a policy and a binding what a mutator says. types are needed
// for the rules of the binding; nil is none.
func Runtime(m *legacy.Mutator, types *openapi.Types) Bound { return Bound{} }

// Rules lists the rules under which requests for the kinds of a mutator come:
// for the resources of these kinds and for the subresources that Gatekeeper's
// webhook is called for and that carry one of them. Kinds that types know no
// resource for are unknown.
func Rules(m *legacy.Mutator, types *openapi.Types) (rules []admissionregistrationv1.NamedRuleWithOperations, unknown []schema.GroupVersionKind) {
	return nil, nil
}
