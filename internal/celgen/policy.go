package celgen

import (
	"slices"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// AddCondition adds a match condition to those of a policy. A name that is taken gets a number.
func AddCondition(conds []admissionregistrationv1.MatchCondition, name, expression string) []admissionregistrationv1.MatchCondition {
	taken := func(name string) bool {
		return slices.ContainsFunc(conds, func(c admissionregistrationv1.MatchCondition) bool { return c.Name == name })
	}
	unique := name
	for n := 2; taken(unique); n++ {
		unique = name + "-" + strconv.Itoa(n)
	}
	return append(conds, admissionregistrationv1.MatchCondition{Name: unique, Expression: expression})
}

// WebhookConfigurations returns a rule that matches the admission configurations themselves. API
// servers run policies on them but call no webhook, so a rule for all resources has to exclude
// them (Kubernetes spec §2.7).
func WebhookConfigurations() admissionregistrationv1.NamedRuleWithOperations {
	return Every([]string{"admissionregistration.k8s.io"}, "mutatingwebhookconfigurations", "validatingwebhookconfigurations")
}

// Every returns a rule for all versions of resources and for all operations.
func Every(groups []string, resources ...string) admissionregistrationv1.NamedRuleWithOperations {
	return admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
		Rule:       admissionregistrationv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: resources},
	}}
}
