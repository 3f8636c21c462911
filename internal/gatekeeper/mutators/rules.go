package mutators

import (
	"maps"
	"slices"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// rules returns the rules of all mutators, sorted and without duplicates. Rules that differ only
// in their operations are merged.
func rules(ms []*legacy.Mutator, types *openapi.Types) []admissionregistrationv1.RuleWithOperations {
	byRule := map[string]*admissionregistrationv1.RuleWithOperations{}
	var key []byte // reused for each rule; most rules are in byRule already
	for _, m := range ms {
		found, _ := translate.Rules(m, types)
		for i := range found {
			r := &found[i].RuleWithOperations
			key = appendKey(key[:0], r)
			known := byRule[string(key)]
			if known == nil {
				known = &admissionregistrationv1.RuleWithOperations{Operations: slices.Clone(r.Operations), Rule: r.Rule}
				byRule[string(key)] = known
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
	for _, key := range slices.Sorted(maps.Keys(byRule)) {
		slices.Sort(byRule[key].Operations)
		out = append(out, *byRule[key])
	}
	return out
}

// appendKey appends a key of r. Two rules have the same key if they differ in nothing but their
// operations.
func appendKey(key []byte, r *admissionregistrationv1.RuleWithOperations) []byte {
	for _, list := range [][]string{r.APIGroups, r.APIVersions, r.Resources} {
		key = append(key, '[')
		for i, s := range list {
			if i > 0 {
				key = append(key, ' ')
			}
			key = strconv.AppendQuote(key, s)
		}
		key = append(key, "] "...)
	}
	if r.Scope != nil {
		return append(key, *r.Scope...)
	}
	return append(key, admissionregistrationv1.AllScopes...)
}
