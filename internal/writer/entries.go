package writer

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An entry is one webhook of either kind of configuration. Those of validating
// ones are a part of those of mutating ones.
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

// withDefaults is e as a server stores it (k8s.io/kubernetes
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

// same says that two lists of entries, both with their defaults, are the same.
func same(a, b []entry) bool { return apiequality.Semantic.DeepEqual(a, b) }

// plan says which entries to write, given those that policies ask for and those
// that are there. Whoever can answer is ready; as long as nobody is, no entry and
// no rule is added, since with failurePolicy Fail that would only keep people
// from working, and waiting is true if there would have been one.
//
// What is there and still asked for is never withdrawn for want of a replica:
// failurePolicy Fail is a promise that nothing passes unmutated.
func plan(desired, live []entry, ready bool) (want []entry, waiting bool) {
	if ready {
		return desired, false
	}
	for _, d := range desired {
		i := slices.IndexFunc(live, func(l entry) bool { return l.Name == d.Name })
		if i < 0 {
			waiting = true
			continue
		}
		d = *d.DeepCopy()
		rules := d.Rules
		d.Rules = nil
		for _, l := range live[i].Rules {
			if slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool { return overlap(l, r) }) {
				d.Rules = append(d.Rules, l)
			}
		}
		if !apiequality.Semantic.DeepEqual(d.Rules, rules) {
			waiting = true
		}
		if len(d.Rules) > 0 {
			want = append(want, d)
		}
	}
	return want, waiting
}

// overlap says that both rules may match one request. Where it is hard to tell
// it says so too.
func overlap(a, b admissionregistrationv1.RuleWithOperations) bool {
	return meet(a.Operations, b.Operations, false) && meet(a.APIGroups, b.APIGroups, false) &&
		meet(a.APIVersions, b.APIVersions, false) && meet(a.Resources, b.Resources, true)
}

func meet[T ~string](a, b []T, patterns bool) bool {
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
