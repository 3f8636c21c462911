package mutators

import (
	"cmp"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/legacy/translate"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// rules are those of all mutators, each once and sorted. Rules that differ in
// their operations only are one.
func rules(ms []*legacy.Mutator, types *openapi.Types) []admissionregistrationv1.RuleWithOperations {
	byRule := map[string]*admissionregistrationv1.RuleWithOperations{}
	for _, m := range ms {
		found, _ := translate.Rules(m, types)
		for i := range found {
			r := found[i].RuleWithOperations
			key := ruleKey(&r)
			known := byRule[key]
			if known == nil {
				r.Operations = slices.Clone(r.Operations)
				byRule[key] = &r
				continue
			}
			for _, op := range r.Operations {
				if !slices.Contains(known.Operations, op) {
					known.Operations = append(known.Operations, op)
				}
			}
		}
	}
	out := make([]admissionregistrationv1.RuleWithOperations, 0, len(byRule))
	for _, r := range byRule {
		slices.Sort(r.Operations)
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b admissionregistrationv1.RuleWithOperations) int {
		return cmp.Compare(ruleKey(&a), ruleKey(&b))
	})
	return out
}

func ruleKey(r *admissionregistrationv1.RuleWithOperations) string {
	scope := admissionregistrationv1.AllScopes
	if r.Scope != nil {
		scope = *r.Scope
	}
	return fmt.Sprintf("%q %q %q %s", r.APIGroups, r.APIVersions, r.Resources, scope)
}
