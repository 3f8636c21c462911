package translate

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// Runtime returns the policy with which mapd runs all mutators of one shape, where shape is
// ShapeOf(m). The policy's parameter is the mutator. The policy has no rules for kinds, source
// and the namespace selector, in which mutators of one shape may differ: the engine checks these.
// For a mutator with external data the policy has no mutation, because no expression can ask a
// provider.
func Runtime(m *legacy.Mutator, shape string) *admissionregistrationv1.MutatingAdmissionPolicy {
	hash := sha256.Sum256([]byte(shape))
	policy := form{params: true}.policy(m)
	policy.Name = "gatekeeper-" + strings.ToLower(string(m.Kind)) + "-" + hex.EncodeToString(hash[:6])
	return policy
}

// policy returns an unnamed policy that has the mutator's effect on every object that
// m.Match, apart from kinds, source and the namespace selector, matches.
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
		},
	}
	if m.From == nil || m.From.External == nil {
		p.Spec.Mutations = []admissionregistrationv1.Mutation{{
			PatchType: admissionregistrationv1.PatchTypeJSONPatch,
			JSONPatch: &admissionregistrationv1.JSONPatch{Expression: f.patch(m).String()},
		}}
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
