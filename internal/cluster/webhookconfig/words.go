package webhookconfig

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Words describes the requests of a webhook entry, such as "creations and
// updates of pods in namespaces with env=prod". It cuts long lists.
func Words(w *admissionregistrationv1.MutatingWebhook) string {
	var rules []string
	for _, r := range w.Rules {
		rules = append(rules, ruleWords(&r))
	}
	out := wordList(rules, 4, "; and ", "; ")
	if with := selectorWords(w.ObjectSelector); len(with) > 0 {
		out += " with " + wordList(with, 8, " and ", ", ")
	}
	for _, m := range w.MatchConditions {
		if _, names, ok := strings.Cut(m.Expression, "request.name in ["); ok && m.Name == NamesCondition {
			out += " named " + strings.ReplaceAll(strings.TrimSuffix(names, "]"), "'", "")
		}
	}
	out += namespaceWords(w.NamespaceSelector)
	for _, m := range w.MatchConditions {
		if m.Name == ConditionsCondition {
			out += ", if " + m.Expression
		}
	}
	return out
}

func ruleWords(r *admissionregistrationv1.RuleWithOperations) string {
	var operations, resources []string
	for _, op := range normalOperations(r.Operations, true) {
		operations = append(operations, map[admissionregistrationv1.OperationType]string{
			admissionregistrationv1.Connect: "connections", admissionregistrationv1.Create: "creations", admissionregistrationv1.Update: "updates",
			admissionregistrationv1.Delete: "deletions",
		}[op])
	}
	prefix := map[admissionregistrationv1.OperationType]string{admissionregistrationv1.Connect: "to ", admissionregistrationv1.Create: "of ", admissionregistrationv1.Update: "of ", admissionregistrationv1.Delete: "of "}
	for _, s := range r.Resources {
		resource, sub, _ := strings.Cut(s, "/")
		if resource == wildcard {
			resource = "all resources"
		}
		switch sub {
		case "":
		case wildcard:
			resource += " and their subresources"
		default:
			resource += " (" + sub + ")"
		}
		resources = append(resources, resource)
	}
	of := "of "
	if len(operations) == 1 {
		of = prefix[normalOperations(r.Operations, true)[0]]
	}
	out := wordList(operations, 3, " and ", ", ") + " " + of + wordList(resources, 8, " and ", ", ")
	groups := slices.DeleteFunc(slices.Clone(r.APIGroups), func(g string) bool { return g == "" || g == wildcard })
	if len(groups) > 0 && len(groups) == len(r.APIGroups) {
		out += " of " + wordList(groups, 4, " and ", ", ")
	}
	if r.Scope != nil && *r.Scope == admissionregistrationv1.ClusterScope {
		out += " without a namespace"
	}
	return out
}

// namespaceWords describes namespaces, beginning with a space.
func namespaceWords(s *metav1.LabelSelector) string {
	var in, out, with []string
	c := conjunctionOf(s)
	for _, r := range c {
		switch {
		case r.key == corev1.LabelMetadataName && r.op == metav1.LabelSelectorOpIn:
			in = r.values
		case r.key == corev1.LabelMetadataName && r.op == metav1.LabelSelectorOpNotIn:
			out = r.values
		default:
			with = append(with, requirementWords(r))
		}
	}
	var b strings.Builder
	switch {
	case len(in) > 0:
		b.WriteString(" in the namespaces " + wordList(in, 8, " and ", ", "))
		if len(in) == 1 {
			b.Reset()
			b.WriteString(" in the namespace " + in[0])
		}
		if len(with) > 0 {
			b.WriteString(" with " + wordList(with, 8, " and ", ", "))
		}
		out = intersect(out, in)
	case len(with) > 0:
		b.WriteString(" in namespaces with " + wordList(with, 8, " and ", ", "))
	default:
		b.WriteString(" in all namespaces")
	}
	if len(out) > 0 {
		b.WriteString(" except " + wordList(out, 8, " and ", ", "))
	}
	return b.String()
}

func selectorWords(s *metav1.LabelSelector) []string {
	var out []string
	for _, r := range conjunctionOf(s) {
		out = append(out, requirementWords(r))
	}
	return out
}

// requirementWords formats a requirement as kubectl writes selectors.
func requirementWords(r requirement) string {
	values := wordList(r.values, 8, ", ", ", ")
	switch {
	case r.op == metav1.LabelSelectorOpExists:
		return r.key
	case r.op == metav1.LabelSelectorOpDoesNotExist:
		return "!" + r.key
	case r.op == metav1.LabelSelectorOpIn && len(r.values) == 1:
		return r.key + "=" + values
	case r.op == metav1.LabelSelectorOpNotIn && len(r.values) == 1:
		return r.key + "!=" + values
	case r.op == metav1.LabelSelectorOpIn:
		return r.key + " in (" + values + ")"
	}
	return r.key + " notin (" + values + ")"
}

// wordList joins up to most words, and says that there are more.
func wordList(words []string, most int, and, comma string) string {
	if len(words) > most {
		return strings.Join(words[:most], comma) + and + "others"
	}
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], comma) + and + words[len(words)-1]
}
