package translate

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Bound is the form of a mutator that the engine runs: a policy that it shares
// with all mutators of its shape, and a binding of its own that has the mutator
// as its parameter.
type Bound struct {
	// Shape is a key: mutators with the same shape have deeply equal policies.
	Shape   string
	Policy  *admissionregistrationv1.MutatingAdmissionPolicy
	Binding *admissionregistrationv1.MutatingAdmissionPolicyBinding
}

// Runtime returns the policy and the binding for a mutator. types are needed
// for the rules of the binding; they may be nil. A binding has no rules if not
// all kinds of the mutator are known: mapd's engine matches kinds itself.
//
// The kinds of the mutator are not part of the policy, which mutators for other
// kinds share.
func Runtime(m *legacy.Mutator, types *openapi.Types) Bound {
	shape := ShapeOf(m)
	kind := strings.ToLower(string(m.Kind))
	hash := sha256.Sum256([]byte(shape))
	policy := form{params: true}.policy(m)
	policy.Name = "gatekeeper-" + kind + "-" + hex.EncodeToString(hash[:6])
	binding := binding(m, types)
	binding.Name = "gatekeeper-" + kind + "-" + m.Name
	binding.Spec.PolicyName = policy.Name
	return Bound{Shape: shape, Policy: policy, Binding: binding}
}

// policy returns an unnamed policy that has the mutator's effect on every
// object that m.Match, apart from kinds and the namespace selector, matches.
func (f form) policy(m *legacy.Mutator) *admissionregistrationv1.MutatingAdmissionPolicy {
	failurePolicy, matchPolicy, scope := admissionregistrationv1.Fail, admissionregistrationv1.Exact, admissionregistrationv1.AllScopes
	p := &admissionregistrationv1.MutatingAdmissionPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingAdmissionPolicy"},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			FailurePolicy:      &failurePolicy,
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				MatchPolicy:       &matchPolicy,
				NamespaceSelector: &metav1.LabelSelector{},
				ObjectSelector:    &metav1.LabelSelector{},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
						Rule: admissionregistrationv1.Rule{
							APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}, Scope: &scope,
						},
					},
				}},
			},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: f.patch(m).String()},
			}},
		},
	}
	if f.params {
		p.Spec.ParamKind = &admissionregistrationv1.ParamKind{APIVersion: legacy.Group + "/" + m.Kind.Version(), Kind: string(m.Kind)}
	}
	for _, c := range f.conditions(m) {
		p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionregistrationv1.MatchCondition{
			Name: c.Name, Expression: c.Expr.String(),
		})
	}
	return p
}

// binding returns an unnamed binding for a policy that gets its name later.
func binding(m *legacy.Mutator, types *openapi.Types) *admissionregistrationv1.MutatingAdmissionPolicyBinding {
	deny, matchPolicy := admissionregistrationv1.DenyAction, admissionregistrationv1.Exact
	selector := m.Match.NamespaceSelector.DeepCopy()
	if selector == nil {
		selector = &metav1.LabelSelector{}
	}
	rules, unknown := Rules(m, types)
	if len(unknown) > 0 {
		rules = nil
	}
	return &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingAdmissionPolicyBinding"},
		Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
			ParamRef: &admissionregistrationv1.ParamRef{Name: m.Name, ParameterNotFoundAction: &deny},
			MatchResources: &admissionregistrationv1.MatchResources{
				MatchPolicy:       &matchPolicy,
				NamespaceSelector: selector,
				ObjectSelector:    &metav1.LabelSelector{},
				ResourceRules:     rules,
			},
		},
	}
}
