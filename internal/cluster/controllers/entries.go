package controllers

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// An entry is one webhook of a mutating or validating configuration. The type has all fields that
// a validating webhook has.
type entry = admissionregistrationv1.MutatingWebhook

func fromValidating(in []admissionregistrationv1.ValidatingWebhook) []entry {
	var out []entry
	for _, v := range in {
		out = append(out, entry{
			Name: v.Name, ClientConfig: v.ClientConfig, Rules: v.Rules, FailurePolicy: v.FailurePolicy, MatchPolicy: v.MatchPolicy,
			NamespaceSelector: v.NamespaceSelector, ObjectSelector: v.ObjectSelector, SideEffects: v.SideEffects,
			TimeoutSeconds: v.TimeoutSeconds, AdmissionReviewVersions: v.AdmissionReviewVersions, MatchConditions: v.MatchConditions,
		})
	}
	return out
}

func toValidating(in []entry) []admissionregistrationv1.ValidatingWebhook {
	var out []admissionregistrationv1.ValidatingWebhook
	for _, e := range in {
		out = append(out, admissionregistrationv1.ValidatingWebhook{
			Name: e.Name, ClientConfig: e.ClientConfig, Rules: e.Rules, FailurePolicy: e.FailurePolicy, MatchPolicy: e.MatchPolicy,
			NamespaceSelector: e.NamespaceSelector, ObjectSelector: e.ObjectSelector, SideEffects: e.SideEffects,
			TimeoutSeconds: e.TimeoutSeconds, AdmissionReviewVersions: e.AdmissionReviewVersions, MatchConditions: e.MatchConditions,
		})
	}
	return out
}

// withDefaults returns e as a server stores it (k8s.io/kubernetes
// pkg/apis/admissionregistration/v1: SetDefaults_…).
func withDefaults(e entry, validating bool) entry {
	e = *e.DeepCopy()
	set(&e.FailurePolicy, admissionregistrationv1.Fail)
	set(&e.MatchPolicy, admissionregistrationv1.Equivalent)
	set(&e.TimeoutSeconds, 10)
	set(&e.NamespaceSelector, metav1.LabelSelector{})
	set(&e.ObjectSelector, metav1.LabelSelector{})
	if !validating {
		set(&e.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
	}
	if s := e.ClientConfig.Service; s != nil {
		set(&s.Port, 443)
	}
	for i := range e.Rules {
		set(&e.Rules[i].Scope, admissionregistrationv1.AllScopes)
	}
	return e
}

func set[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

// same reports whether two lists of entries, both with their defaults, are equal.
func same(a, b []entry) bool { return apiequality.Semantic.DeepEqual(a, b) }

// plan returns the entries to write, from the desired entries and the live ones. ready: a replica
// can answer. Until then, plan adds no entry and no rule and widens no selector, because with
// failurePolicy Fail that would only block requests; waiting reports that plan has left out such
// a change.
//
// plan keeps a live rule that is still needed even if no replica is ready: failurePolicy Fail
// promises that no request passes unmutated. Policies that have moved to another entry of their
// group still need the entry that they have left.
func plan(desired, live []entry, ready bool) (want []entry, waiting bool) {
	if ready {
		return desired, false
	}
	for _, l := range live {
		var rules []admissionregistrationv1.RuleWithOperations // of all entries that may have taken over a part of l
		var sibling *entry
		siblings := 0
		for i := range desired {
			if d := &desired[i]; sameGroup(d.Name, l.Name) {
				rules = append(rules, d.Rules...)
				siblings++
				if sibling == nil || d.Name == l.Name {
					sibling = d
				}
			}
		}
		kept := slices.DeleteFunc(slices.Clone(l.Rules), func(r admissionregistrationv1.RuleWithOperations) bool {
			return !slices.ContainsFunc(rules, func(by admissionregistrationv1.RuleWithOperations) bool { return overlap(r, by) })
		})
		if len(kept) == 0 {
			continue
		}
		w := *sibling.DeepCopy()
		w.Name, w.Rules = l.Name, kept
		w.MatchPolicy, w.MatchConditions = l.MatchPolicy, conditionsOf(*sibling, l)
		// If only one entry has taken over policies of l, and it is l itself, its selector may
		// become narrower.
		if siblings > 1 || w.Name != sibling.Name || !webhookconfig.Covers(l, *sibling) {
			w.NamespaceSelector, w.ObjectSelector = withExemptNamespaces(sibling.NamespaceSelector, l.NamespaceSelector), l.ObjectSelector
		}
		if s := l.ClientConfig.Service; s != nil && w.ClientConfig.Service != nil {
			w.ClientConfig.Service.Path = s.Path
		}
		if l.ClientConfig.URL != nil && w.ClientConfig.URL != nil && w.Name != sibling.Name {
			w.ClientConfig.URL = l.ClientConfig.URL
		}
		want = append(want, w)
	}
	return want, !same(want, desired)
}

// sameGroup reports whether two entries are of the same group of policies.
func sameGroup(a, b string) bool {
	idA, okA := webhook.ParseName(a)
	idB, okB := webhook.ParseName(b)
	return okA == okB && idA.Group == idB.Group && (okA || a == b)
}

// withExemptNamespaces returns the selector is, but with the exempt namespaces of should. In
// both, they are the first requirement.
func withExemptNamespaces(should, is *metav1.LabelSelector) *metav1.LabelSelector {
	spares := func(s *metav1.LabelSelector) bool {
		return s != nil && len(s.MatchExpressions) > 0 && s.MatchExpressions[0].Key == corev1.LabelMetadataName && s.MatchExpressions[0].Operator == metav1.LabelSelectorOpNotIn
	}
	if !spares(should) || !spares(is) {
		return is
	}
	out := is.DeepCopy()
	out.MatchExpressions[0] = *should.MatchExpressions[0].DeepCopy()
	return out
}

// conditionsOf returns the conditions of should, except that those which depend on policies are
// taken from is.
func conditionsOf(should, is entry) []admissionregistrationv1.MatchCondition {
	out := slices.DeleteFunc(slices.Clone(should.MatchConditions), webhookconfig.DependsOnPolicies)
	for _, m := range is.MatchConditions {
		if webhookconfig.DependsOnPolicies(m) {
			out = append(out, m)
		}
	}
	return out
}

// overlap reports whether both rules may match the same request. It returns true if that is hard
// to decide.
func overlap(a, b admissionregistrationv1.RuleWithOperations) bool {
	return intersect(a.Operations, b.Operations, false) && intersect(a.APIGroups, b.APIGroups, false) &&
		intersect(a.APIVersions, b.APIVersions, false) && intersect(a.Resources, b.Resources, true)
}

func intersect[T ~string](a, b []T, patterns bool) bool {
	for _, x := range a {
		for _, y := range b {
			wild := x == "*" || y == "*"
			if patterns {
				wild = strings.Contains(string(x+y), "*")
			}
			if x == y || wild {
				return true
			}
		}
	}
	return false
}
