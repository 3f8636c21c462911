package webhookconfig

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// LegacyName is the name of the entry for Gatekeeper's mutators.
const LegacyName = "legacy.mapd.dev"

// LegacyEntry returns the entry for Gatekeeper's mutators from the rules of the
// requests that they apply to, or nil without rules. It comes after those of
// all groups, so that mutators see what policies have done. base is as for
// Configuration.
//
// The entry promises the same as Gatekeeper's own (Gatekeeper spec §9.1): it is
// skipped if mapd cannot be reached, called once, and for requests in the very
// version that a rule names. It excludes namespaces with api.IgnoreLabel,
// Gatekeeper's own objects, and Gatekeeper itself as it is installed by default
// (Gatekeeper spec §9.2).
func LegacyEntry(rules []admissionregistrationv1.RuleWithOperations, base admissionregistrationv1.MutatingWebhook) *admissionregistrationv1.MutatingWebhook {
	if rules = mergeRules(normalRules(rules)); len(rules) == 0 {
		return nil
	}
	w := newEntry(base, LegacyName, webhook.LegacyPath)
	w.Rules = rules
	w.FailurePolicy = new(admissionregistrationv1.Ignore)
	w.ReinvocationPolicy = new(admissionregistrationv1.NeverReinvocationPolicy)
	w.MatchPolicy = new(admissionregistrationv1.Exact)
	if w.NamespaceSelector == nil {
		w.NamespaceSelector = &metav1.LabelSelector{}
	}
	w.NamespaceSelector.MatchExpressions = append(w.NamespaceSelector.MatchExpressions,
		metav1.LabelSelectorRequirement{Key: api.IgnoreLabel, Operator: metav1.LabelSelectorOpDoesNotExist})
	w.MatchConditions = append(slices.Clip(w.MatchConditions), legacyConditions()...)
	return w
}

// legacyConditions exclude objects that Gatekeeper does not mutate. The engine
// excludes them as well, but a call would delay every write to them.
func legacyConditions() []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{
		{Name: "not-gatekeeper-objects", Expression: "!(request.kind.group in ['" + strings.Join(api.GatekeeperGroups, "', '") + "'])"},
		{Name: "not-gatekeeper-itself", Expression: "request.userInfo.username != 'system:serviceaccount:" + api.GatekeeperNamespace + ":gatekeeper-admin'"},
	}
}
