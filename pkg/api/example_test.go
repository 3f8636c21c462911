package api_test

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/mapd-project/mapd/pkg/api"
)

func Example() {
	var match admissionregistrationv1.MatchResources
	api.SetMatchDefaults(&match)
	fmt.Println(*match.MatchPolicy)

	match.ResourceRules = []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"CREATE"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, Resources: []string{"pods"}},
	}}}
	fmt.Println(api.ValidateMatchResources(&match, field.NewPath("spec", "matchConstraints")))
	// Output:
	// Equivalent
	// [spec.matchConstraints.resourceRules[0].apiVersions: Required value]
}
