package webhookconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// wildcard stands for every group, version or resource.
const wildcard = "*"

// routes returns the requests that a policy's rules match, as rules that a
// server accepts in a webhook's entry. Each is in its normal form: without
// repetitions and values that a wildcard beside them covers, with sorted lists,
// and with the operations that a policy can see. A rule that cannot match
// anything, because a list is empty or the scope is none, is left out.
func routes(obj *admissionregistrationv1.MutatingAdmissionPolicy) []admissionregistrationv1.RuleWithOperations {
	if obj.Spec.MatchConstraints == nil {
		return nil
	}
	var out []admissionregistrationv1.RuleWithOperations
	for i := range obj.Spec.MatchConstraints.ResourceRules {
		if r, ok := normalRule(&obj.Spec.MatchConstraints.ResourceRules[i].RuleWithOperations); ok {
			out = append(out, r)
		}
	}
	return out
}

// normalRules returns the normal forms of those rules that can match anything.
func normalRules(rules []admissionregistrationv1.RuleWithOperations) []admissionregistrationv1.RuleWithOperations {
	var out []admissionregistrationv1.RuleWithOperations
	for i := range rules {
		if r, ok := normalRule(&rules[i]); ok {
			out = append(out, r)
		}
	}
	return out
}

// normalRule returns the normal form of a rule; ok is false if it cannot match
// anything.
func normalRule(in *admissionregistrationv1.RuleWithOperations) (r admissionregistrationv1.RuleWithOperations, ok bool) {
	return normalRuleOf(in, false)
}

// normalRuleOf is normalRule, with deletions if the policy sees them.
func normalRuleOf(in *admissionregistrationv1.RuleWithOperations, deletions bool) (r admissionregistrationv1.RuleWithOperations, ok bool) {
	r = admissionregistrationv1.RuleWithOperations{
		Operations: normalOperations(in.Operations, deletions),
		Rule: admissionregistrationv1.Rule{
			APIGroups:   normalList(in.APIGroups),
			APIVersions: normalList(named(in.APIVersions)),
			Resources:   normalResources(in.Resources),
			Scope:       new(admissionregistrationv1.AllScopes),
		},
	}
	if in.Scope != nil {
		*r.Scope = *in.Scope
	}
	switch *r.Scope {
	case admissionregistrationv1.AllScopes, admissionregistrationv1.ClusterScope, admissionregistrationv1.NamespacedScope:
	default:
		return r, false
	}
	return r, len(r.Operations) > 0 && len(r.APIGroups) > 0 && len(r.APIVersions) > 0 && len(r.Resources) > 0
}

// named returns the strings of a list that are not empty.
func named(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" })
}

// normalOperations returns which operations a policy can see of those that a
// rule lists.
func normalOperations(list []admissionregistrationv1.OperationType, deletions bool) []admissionregistrationv1.OperationType {
	var out []admissionregistrationv1.OperationType
	for _, op := range [...]admissionregistrationv1.OperationType{admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Delete, admissionregistrationv1.Update} {
		if op == admissionregistrationv1.Delete && !deletions {
			continue
		}
		if slices.Contains(list, op) || slices.Contains(list, admissionregistrationv1.OperationAll) {
			out = append(out, op)
		}
	}
	return out
}

// normalList sorts the values of a list. "*" replaces all others.
func normalList(list []string) []string {
	if slices.Contains(list, wildcard) {
		return []string{wildcard}
	}
	return sortedSet(list)
}

// normalResources sorts resources and drops those that another one covers.
func normalResources(list []string) []string {
	list = slices.Clone(list)
	for i, r := range list {
		if resource, sub, _ := strings.Cut(r, "/"); sub == "" {
			list[i] = resource // "pods/" is pods
		}
	}
	list = sortedSet(named(list))
	set := make(map[string]bool, len(list))
	for _, r := range list {
		set[r] = true
	}
	return slices.DeleteFunc(list, func(r string) bool {
		return slices.ContainsFunc(wider(r), func(w string) bool { return set[w] })
	})
}

// wider returns the other resources that cover everything that r matches. A "*"
// after the slash matches the empty subresource too, so pods/* covers pods.
func wider(r string) []string {
	resource, sub, _ := strings.Cut(r, "/")
	var out []string
	for _, w := range [...]string{wildcard + "/" + wildcard, resource + "/" + wildcard, join(wildcard, sub)} {
		if w != r {
			out = append(out, w)
		}
	}
	return out
}

func join(resource, sub string) string {
	if sub == "" {
		return resource
	}
	return resource + "/" + sub
}

// mergeRules returns few rules for the requests that the given ones, which must
// be normal, match together; it does not search for the fewest. A server tries
// them one after the other on every request. The result does not depend on the
// order of the rules.
func mergeRules(rules []admissionregistrationv1.RuleWithOperations) []admissionregistrationv1.RuleWithOperations {
	rules = uncovered(rules)
	for {
		before := len(rules)
		// Rules that differ in one list only become one rule with both lists.
		rules = mergeBy(rules, func(r *admissionregistrationv1.RuleWithOperations) { r.Resources = nil },
			func(into, r *admissionregistrationv1.RuleWithOperations) {
				into.Resources = append(into.Resources, r.Resources...)
			})
		rules = mergeBy(rules, func(r *admissionregistrationv1.RuleWithOperations) { r.Operations = nil },
			func(into, r *admissionregistrationv1.RuleWithOperations) {
				into.Operations = append(into.Operations, r.Operations...)
			})
		rules = mergeBy(rules, func(r *admissionregistrationv1.RuleWithOperations) { r.APIVersions = nil },
			func(into, r *admissionregistrationv1.RuleWithOperations) {
				into.APIVersions = append(into.APIVersions, r.APIVersions...)
			})
		rules = mergeBy(rules, func(r *admissionregistrationv1.RuleWithOperations) { r.APIGroups = nil },
			func(into, r *admissionregistrationv1.RuleWithOperations) {
				into.APIGroups = append(into.APIGroups, r.APIGroups...)
			})
		rules = uncovered(rules)
		if len(rules) == before {
			return rules
		}
	}
}

// mergeBy joins the rules that are equal after without has removed a list from
// them.
func mergeBy(rules []admissionregistrationv1.RuleWithOperations,
	without func(*admissionregistrationv1.RuleWithOperations),
	add func(into, r *admissionregistrationv1.RuleWithOperations)) []admissionregistrationv1.RuleWithOperations {
	at := make(map[string]int, len(rules))
	var out []admissionregistrationv1.RuleWithOperations
	for i := range rules {
		rest := rules[i]
		without(&rest)
		k := key(&rest)
		if n, ok := at[k]; ok {
			add(&out[n], &rules[i])
			continue
		}
		at[k] = len(out)
		add(&rest, &rules[i])
		out = append(out, rest)
	}
	for i := range out {
		r := &out[i]
		r.Operations = normalOperations(r.Operations, true)
		r.APIGroups, r.APIVersions, r.Resources = normalList(r.APIGroups), normalList(r.APIVersions), normalResources(r.Resources)
	}
	slices.SortFunc(out, compareRules)
	return out
}

// uncovered sorts rules and drops those that another one covers.
func uncovered(rules []admissionregistrationv1.RuleWithOperations) []admissionregistrationv1.RuleWithOperations {
	rules = slices.Clone(rules)
	slices.SortFunc(rules, compareRules)
	rules = slices.CompactFunc(rules, func(a, b admissionregistrationv1.RuleWithOperations) bool { return compareRules(a, b) == 0 })
	// A rule that covers another one names its first group, or all.
	naming := map[string][]int{}
	for i := range rules {
		for _, g := range rules[i].APIGroups {
			naming[g] = append(naming[g], i)
		}
	}
	var out []admissionregistrationv1.RuleWithOperations
	for i := range rules {
		// No two rules are equal, so no two rules cover each other.
		covers := func(j int) bool { return j != i && ruleCovers(&rules[j], &rules[i]) }
		if !slices.ContainsFunc(naming[wildcard], covers) && !slices.ContainsFunc(naming[rules[i].APIGroups[0]], covers) {
			out = append(out, rules[i])
		}
	}
	return out
}

// ruleCovers reports whether a matches every request that b matches. Both are
// normal, so their lists are sorted; a list can have hundreds of thousands of
// elements.
func ruleCovers(a, b *admissionregistrationv1.RuleWithOperations) bool {
	return (*a.Scope == admissionregistrationv1.AllScopes || *a.Scope == *b.Scope) &&
		includes(a.Operations, b.Operations) &&
		(a.APIGroups[0] == wildcard || includes(a.APIGroups, b.APIGroups)) &&
		(a.APIVersions[0] == wildcard || includes(a.APIVersions, b.APIVersions)) &&
		!slices.ContainsFunc(b.Resources, func(r string) bool {
			return !has(a.Resources, r) &&
				!slices.ContainsFunc(wider(r), func(w string) bool { return has(a.Resources, w) })
		})
}

// includes reports whether each of some is in all, which is sorted.
func includes[T cmp.Ordered](all, some []T) bool {
	return !slices.ContainsFunc(some, func(s T) bool { return !has(all, s) })
}

// has reports whether a sorted list has an element.
func has[T cmp.Ordered](sorted []T, e T) bool {
	_, ok := slices.BinarySearch(sorted, e)
	return ok
}

// compareRules orders rules by their groups, for readers. It returns 0 for
// equal rules only.
func compareRules(a, b admissionregistrationv1.RuleWithOperations) int {
	return cmp.Or(
		slices.Compare(a.APIGroups, b.APIGroups),
		slices.Compare(a.APIVersions, b.APIVersions),
		slices.Compare(a.Resources, b.Resources),
		slices.Compare(a.Operations, b.Operations),
		cmp.Compare(*a.Scope, *b.Scope),
	)
}

// key returns a text that is the same for equal rules only.
func key(r *admissionregistrationv1.RuleWithOperations) string {
	return fmt.Sprintf("%q %q %q %q %q", r.APIGroups, r.APIVersions, r.Resources, r.Operations, *r.Scope)
}

// sortedSet returns the different strings of a list, sorted.
func sortedSet(list []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}
