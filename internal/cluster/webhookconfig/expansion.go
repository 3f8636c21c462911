package webhookconfig

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/pkg/webhook"
)

// ExpansionName is the name of the entry for workloads.
const ExpansionName = "expand.mapd.dev"

// ExpansionEntry returns the validating entry for the workloads that rules name, or
// nil without rules. base is as for Configuration.
//
// The entry is skipped if mapd cannot be reached: it tells authors early what admission
// will do to the objects of their workloads, and admission does it in any case. It
// excludes workloads that a controller has made of another one, such as the ReplicaSets
// of a Deployment, of which the author has been warned.
func ExpansionEntry(rules []admissionregistrationv1.RuleWithOperations, base admissionregistrationv1.MutatingWebhook) *admissionregistrationv1.MutatingWebhook {
	if rules = mergeRules(normalRules(rules)); len(rules) == 0 {
		return nil
	}
	w := newEntry(base, ExpansionName, webhook.ExpandPath)
	w.Rules = rules
	w.FailurePolicy = new(admissionregistrationv1.Ignore)
	w.MatchPolicy = new(admissionregistrationv1.Equivalent)
	w.MatchConditions = append(w.MatchConditions, admissionregistrationv1.MatchCondition{
		Name:       "not-controlled",
		Expression: "!has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(r, has(r.controller) && r.controller)",
	})
	return w
}
