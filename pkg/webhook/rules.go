package webhook

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// wildcard stands for every group, version or resource.
const wildcard = "*"

// routes are the requests that a policy's rules match, as rules that a server
// accepts in a webhook's entry. Each is in its one normal form: what a list
// says twice, or says although a wildcard beside it says it too, is gone; lists
// are sorted; operations are those that a policy can see. A rule that cannot
// match anything, because a list is empty or the scope is none, is left out.
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

// normalRule is a rule in its normal form; ok is false if it cannot match anything.
func normalRule(in *admissionregistrationv1.RuleWithOperations) (r admissionregistrationv1.RuleWithOperations, ok bool) {
	r = admissionregistrationv1.RuleWithOperations{
		Operations: normalOperations(in.Operations),
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

// named are the strings of a list that are not empty.
func named(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" })
}

// normalOperations returns which operations a policy can see of those that a
// rule lists.
func normalOperations(list []admissionregistrationv1.OperationType) []admissionregistrationv1.OperationType {
	var out []admissionregistrationv1.OperationType
	for _, op := range [...]admissionregistrationv1.OperationType{admissionregistrationv1.Connect, admissionregistrationv1.Create, admissionregistrationv1.Update} {
		if slices.Contains(list, op) || slices.Contains(list, admissionregistrationv1.OperationAll) {
			out = append(out, op)
		}
	}
	return out
}

// normalList sorts the values of a list; "*" is alone.
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

// wider are the resources other than r that cover all that r matches. A "*"
// behind the slash accepts the empty subresource too, so pods/* covers pods.
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

// mergeRules returns the fewest rules that are easily found for the requests
// that the given ones match together, which must be normal. A server tries them
// one after the other on every request. The result depends on the set of rules
// only, not on their order.
func mergeRules(rules []admissionregistrationv1.RuleWithOperations) []admissionregistrationv1.RuleWithOperations {
	rules = uncovered(rules)
	for {
		before := len(rules)
		// Two rules that differ in one list only are one rule with both lists.
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

// mergeBy joins the rules that are alike once without has taken a list from
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
		r.Operations = normalOperations(r.Operations)
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
	// Whatever covers a rule names its first group, or all.
	naming := map[string][]int{}
	for i := range rules {
		for _, g := range rules[i].APIGroups {
			naming[g] = append(naming[g], i)
		}
	}
	var out []admissionregistrationv1.RuleWithOperations
	for i := range rules {
		// No two rules are equal, so of two that cover each other there is none.
		covers := func(j int) bool { return j != i && ruleCovers(&rules[j], &rules[i]) }
		if !slices.ContainsFunc(naming[wildcard], covers) && !slices.ContainsFunc(naming[rules[i].APIGroups[0]], covers) {
			out = append(out, rules[i])
		}
	}
	return out
}

// ruleCovers reports whether a matches every request that b matches. Both are normal,
// so their lists are sorted; one can have hundreds of thousands of elements.
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

// compareRules puts rules into the order of their groups, for readers; only
// equal rules compare as equal.
func compareRules(a, b admissionregistrationv1.RuleWithOperations) int {
	return cmp.Or(
		slices.Compare(a.APIGroups, b.APIGroups),
		slices.Compare(a.APIVersions, b.APIVersions),
		slices.Compare(a.Resources, b.Resources),
		slices.Compare(a.Operations, b.Operations),
		cmp.Compare(*a.Scope, *b.Scope),
	)
}

// key is a text that two rules share only if they are equal.
func key(r *admissionregistrationv1.RuleWithOperations) string {
	return fmt.Sprintf("%q %q %q %q %q", r.APIGroups, r.APIVersions, r.Resources, r.Operations, *r.Scope)
}

// sortedSet returns the different strings of a list, sorted.
func sortedSet(list []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}
