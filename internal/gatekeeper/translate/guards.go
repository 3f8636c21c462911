package translate

import (
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mapd-project/mapd/internal/celgen"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// guards returns the match conditions of a native policy: what the mutator asks
// for and neither rules nor a selector can express.
func (n *translation) guards(m *legacy.Mutator) []condition {
	var conds []condition
	if names := m.Match.Namespaces; len(names) > 0 && !slices.ContainsFunc(names, isEverything) {
		is := condition{Name: "in-namespace", Expr: n.namespace(m, func(name expr) expr { return matches(name, names) })}
		if exact, rest := selectable(names); len(rest) == 0 && !mayBeNamespace(m) {
			is.names = nameRequirement(metav1.LabelSelectorOpIn, exact)
		}
		conds = append(conds, is)
	}
	if names := m.Match.ExcludedNamespaces; slices.ContainsFunc(names, isEverything) {
		none := not(fn("has", namespaceOfRequest))
		if mayBeNamespace(m) {
			none = all(none, not(isNamespace())) // a Namespace with generateName has no name yet
		}
		conds = append(conds, condition{Name: "in-no-namespace", Expr: none})
	} else {
		exact, rest := selectable(names)
		if mayBeNamespace(m) {
			exact, rest = nil, names
		}
		exclude := func(names []string, in *metav1.LabelSelectorRequirement) {
			if len(names) > 0 {
				is := n.namespace(m, func(name expr) expr { return not(matches(name, names)) })
				conds = append(conds, condition{"not-in-excluded-namespace", is, in})
			}
		}
		exclude(exact, nameRequirement(metav1.LabelSelectorOpNotIn, exact))
		exclude(rest, nil)
	}
	if s := m.Match.LabelSelector; s != nil {
		if e, ok := n.form.selects(s, optional(n.form.metadata(), "labels"), "labelSelector"); ok {
			conds = append(conds, condition{Name: "labels-match", Expr: e})
		}
	}
	if p := m.Match.Name; p != "" && !isEverything(p) {
		conds = append(conds, condition{Name: "name-matches", Expr: n.form.named(p)})
	}
	return conds
}

// selectable divides patterns into names that a selector on metadataName can list, without
// duplicates, and the rest.
func selectable(patterns []string) (names, rest []string) {
	for _, p := range patterns {
		switch {
		case kindOf(p) != exactly || p == "" || len(validation.IsValidLabelValue(p)) > 0:
			rest = append(rest, p)
		case !slices.Contains(names, p):
			names = append(names, p)
		}
	}
	return names, rest
}

// metadataName is the label with the Namespace's name that an API server sets on every Namespace
// and protects. A selector in a binding treats objects as Gatekeeper does: it selects every
// object without a namespace (Gatekeeper spec §7.3, Kubernetes spec §2.5). It cannot be used to
// match Namespaces themselves: while a Namespace with generateName has no name yet, its author
// chooses the label's value.
const metadataName = "kubernetes.io/metadata.name"

func nameRequirement(op metav1.LabelSelectorOperator, names []string) *metav1.LabelSelectorRequirement {
	return &metav1.LabelSelectorRequirement{Key: metadataName, Operator: op, Values: names}
}

// selectNames moves conditions about names of namespaces into the binding's selector, and returns
// the others.
func (d *policyDraft) selectNames(conds []condition) (rest []condition) {
	s := d.binding.MatchResources.NamespaceSelector
	own := &s.MatchExpressions[len(s.MatchExpressions)-1] // excludes Gatekeeper's own namespace
	var in []string
	for _, c := range conds {
		switch r := c.names; {
		case r == nil:
			rest = append(rest, c)
		case r.Operator == metav1.LabelSelectorOpIn:
			in = r.Values
		default:
			own.Values = slices.Compact(slices.Sorted(slices.Values(slices.Concat(own.Values, r.Values))))
		}
	}
	if in == nil {
		return rest
	}
	left := slices.DeleteFunc(slices.Clone(in), func(name string) bool { return slices.Contains(own.Values, name) })
	if len(left) == 0 {
		s.MatchExpressions = append(s.MatchExpressions, *nameRequirement(metav1.LabelSelectorOpIn, in))
		return rest
	}
	*own = *nameRequirement(metav1.LabelSelectorOpIn, left)
	return rest
}

// namespaceOfRequest exists for objects that have a namespace, and for
// Namespaces (Kubernetes spec §6.1).
var namespaceOfRequest = field(ident("request"), "namespace")

// namespace returns the condition that test holds for the name of the object's namespace, or that
// the object has no namespace.
func (n *translation) namespace(m *legacy.Mutator, test func(name expr) expr) expr {
	if n.namespaced(m) {
		return test(namespaceOfRequest)
	}
	return n.form.namespace(m, test)
}

// namespaced reports whether all kinds of the mutator are known to be
// namespaced.
func (n *translation) namespaced(m *legacy.Mutator) bool {
	if m.Match.Scope == "Namespaced" {
		return true // the rules say so
	}
	kinds := n.kinds(m)
	return len(kinds) > 0 && !slices.ContainsFunc(kinds, func(k served) bool { return !k.namespaced })
}

// scope returns match.scope, or "" if all kinds of the mutator have that scope
// anyway.
func (n *translation) scope(m *legacy.Mutator) string {
	kinds := n.kinds(m)
	switch s := m.Match.Scope; s {
	case "Namespaced", "Cluster":
		if len(kinds) == 0 || slices.ContainsFunc(kinds, func(k served) bool { return k.namespaced != (s == "Namespaced") }) {
			return s
		}
	}
	return ""
}

// ephemeral is the only part of a Pod that requests for ephemeralResource can change: a server
// drops other changes, so only mutators of this part get a rule for the subresource.
var ephemeral = legacy.Path{{Name: "spec"}, {Name: "ephemeralContainers"}}

const ephemeralResource = "pods/ephemeralcontainers"

// rules returns the resource rules for some mutators. Resources of the same group, version, scope
// and operations share a rule.
func (n *translation) rules(ms []*legacy.Mutator) []admissionregistrationv1.NamedRuleWithOperations {
	var out []admissionregistrationv1.NamedRuleWithOperations
	for _, m := range ms {
		rules, _ := Rules(m, n.types)
		for _, r := range rules {
			if !m.Location.Meets(ephemeral) {
				r.Resources = slices.DeleteFunc(r.Resources, func(s string) bool { return s == ephemeralResource })
			}
			if len(r.Resources) == 0 {
				continue
			}
			r.Scope = nil // any
			if s := admissionregistrationv1.ScopeType(n.scope(m)); s != "" {
				r.Scope = &s
			}
			i := slices.IndexFunc(out, func(o admissionregistrationv1.NamedRuleWithOperations) bool {
				resources := o.Resources
				o.Resources = r.Resources
				same := reflect.DeepEqual(o, r)
				o.Resources = resources
				return same
			})
			if i < 0 {
				out = append(out, *r.DeepCopy())
				continue
			}
			out[i].Resources = append(out[i].Resources, r.Resources...)
			slices.Sort(out[i].Resources)
			out[i].Resources = slices.Compact(out[i].Resources)
		}
	}
	return n.withoutCovered(out)
}

// withoutCovered removes resources that another rule covers.
func (n *translation) withoutCovered(rules []admissionregistrationv1.NamedRuleWithOperations) []admissionregistrationv1.NamedRuleWithOperations {
	for i := range rules {
		r := &rules[i]
		r.Resources = slices.DeleteFunc(r.Resources, func(resource string) bool {
			for j, other := range rules {
				if j != i && n.covers(other.RuleWithOperations, r.RuleWithOperations, resource) {
					return true
				}
			}
			return false
		})
	}
	return slices.DeleteFunc(rules, func(r admissionregistrationv1.NamedRuleWithOperations) bool { return len(r.Resources) == 0 })
}

// covers reports whether other matches all requests for a resource that r
// matches.
func (n *translation) covers(other, r admissionregistrationv1.RuleWithOperations, resource string) bool {
	lists := func(list []string, s string) bool { return slices.Contains(list, "*") || slices.Contains(list, s) }
	group, version := r.APIGroups[0], r.APIVersions[0]
	missing := func(o admissionregistrationv1.OperationType) bool { return !slices.Contains(other.Operations, o) }
	if !lists(other.APIGroups, group) || !lists(other.APIVersions, version) || slices.ContainsFunc(r.Operations, missing) {
		return false
	}
	main, sub, _ := strings.Cut(resource, "/")
	if !slices.Contains(other.Resources, resource) && (sub != "" || !slices.Contains(other.Resources, "*")) {
		return false
	}
	return other.Scope == nil || r.Scope != nil && *r.Scope == *other.Scope || n.inScope(group, version, main, *other.Scope)
}

// inScope reports whether a resource is known to have a scope.
func (n *translation) inScope(group, version, resource string, scope admissionregistrationv1.ScopeType) bool {
	kind, ok := n.types.KindFor(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, "")
	if !ok {
		return false
	}
	of, ok := n.types.ResourceFor(kind)
	return ok && of.Namespaced == (scope == admissionregistrationv1.NamespacedScope)
}

func isWild(rules []admissionregistrationv1.NamedRuleWithOperations) bool {
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.NamedRuleWithOperations) bool {
		return slices.Contains(r.APIGroups, "*") || slices.Contains(r.APIVersions, "*") ||
			slices.ContainsFunc(r.Resources, func(s string) bool { return strings.HasPrefix(s, "*") })
	})
}

// spared returns exclude rules for objects that a wildcard must not match: Gatekeeper's own, and
// the admission configurations.
func spared() []admissionregistrationv1.NamedRuleWithOperations {
	return []admissionregistrationv1.NamedRuleWithOperations{
		celgen.Every(slices.Sorted(slices.Values(api.GatekeeperGroups)), "*/*"), celgen.WebhookConfigurations(),
	}
}

// namespaces returns the namespaceSelector of a binding: match.namespaceSelector and the label
// that exempts a namespace from Gatekeeper. For a Namespace and for objects without a namespace
// the selector has the same result as in Gatekeeper (Gatekeeper spec §7.3).
func namespaces(s *metav1.LabelSelector) *metav1.LabelSelector {
	out := &metav1.LabelSelector{}
	if s != nil {
		out = s.DeepCopy()
	}
	out.MatchExpressions = append(out.MatchExpressions,
		metav1.LabelSelectorRequirement{Key: api.IgnoreLabel, Operator: metav1.LabelSelectorOpDoesNotExist},
		metav1.LabelSelectorRequirement{
			Key: metadataName, Operator: metav1.LabelSelectorOpNotIn, Values: []string{api.GatekeeperNamespace},
		})
	return out
}
