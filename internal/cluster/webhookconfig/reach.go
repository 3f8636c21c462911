package webhookconfig

import (
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/pkg/webhook"
)

// A Reach is the set of requests that a policy with one of its bindings can act
// on, as far as a webhook's entry can describe it. It is never narrower than
// what the two match. It is immutable.
type Reach struct {
	policy string // its name
	group  webhook.Group
	area
	// class is what stays the same of a Reach when the values of its free
	// requirement change: Reaches of one class are united without loss.
	class string
	free  requirementRef
}

// An area is a set of requests.
type area struct {
	rules               []admissionregistrationv1.RuleWithOperations // merged
	equivalent          bool                                         // rules match equivalent resources, too
	namespaces, objects conjunction
	names               []string // of objects; nil: every name
	gates               []string // one of these conditions holds; nil: of every request
}

// requirementRef identifies a requirement of an area: an index into objects or
// namespaces.
type requirementRef struct {
	objects bool
	at      int // -1: none
}

// Bounds on the size of an entry. A server stores the configuration as one
// object of at most 1.5 MiB and searches the lists for each request.
const (
	// maxValues is how many values a requirement of an entry may have; a
	// selector that needs more drops the requirement.
	maxValues = 500
	// maxNames is how many names of objects an entry may have.
	maxNames = 50
)

// ReachOf returns the requests that a policy acts on by one binding, whose
// matchResources may be nil. It returns nil if no request can match both.
//
// Namespace selectors apply to one Namespace, so both have to select it. Object
// selectors apply to the old and the new object of an update, and each may
// select a different one of the two: an entry has both selectors only if there
// is no old object or if one selector covers the other, and otherwise the
// longer one. Groups and versions of rules are the policy's, because they tell
// the server in which version to send the object; the binding's narrow them
// only if neither matches equivalent resources.
func ReachOf(p *admissionregistrationv1.MutatingAdmissionPolicy, binding *admissionregistrationv1.MatchResources) *Reach {
	return reachOf(p, binding, false)
}

// ReachWithDeletions is ReachOf for a policy without bindings that sees deletions, too.
func ReachWithDeletions(p *admissionregistrationv1.MutatingAdmissionPolicy) *Reach {
	return reachOf(p, nil, true)
}

func reachOf(p *admissionregistrationv1.MutatingAdmissionPolicy, binding *admissionregistrationv1.MatchResources, deletions bool) *Reach {
	m := p.Spec.MatchConstraints
	if m == nil {
		return nil
	}
	r := &Reach{policy: p.Name, group: webhook.GroupOf(p)}
	r.equivalent = matchesEquivalent(m)
	r.namespaces, r.objects = conjunctionOf(m.NamespaceSelector), conjunctionOf(m.ObjectSelector)
	r.rules, r.names = reachedRules(m, m, deletions), namesOf(m.ResourceRules)
	if binding != nil {
		r.rules = narrowRules(r.rules, m, binding)
		if r.names == nil {
			r.names = namesOf(binding.ResourceRules)
		}
		r.namespaces = r.namespaces.and(conjunctionOf(binding.NamespaceSelector))
		r.objects = bothObjects(r.objects, conjunctionOf(binding.ObjectSelector), r.rules)
	}
	if len(r.rules) == 0 {
		return nil
	}
	r.rules = mergeRules(r.rules)
	r.namespaces, r.objects = r.namespaces.bounded(), r.objects.bounded()
	if gate := gateOf(p); gate != "" && parses(m) && parses(binding) {
		r.gates = []string{gate}
	}
	r.classify()
	return r
}

// Equal reports whether both are the same; either may be nil.
func (r *Reach) Equal(o *Reach) bool {
	if r == nil || o == nil {
		return r == o
	}
	// Everything else is in the class, except the gates.
	q, p := r.requirement(r.free), o.requirement(o.free)
	return r.policy == o.policy && r.group == o.group && r.class == o.class && slices.Equal(r.gates, o.gates) && (q == nil || slices.Equal(q.values, p.values))
}

func matchesEquivalent(m *admissionregistrationv1.MatchResources) bool {
	return m.MatchPolicy == nil || *m.MatchPolicy != admissionregistrationv1.Exact
}

// reachedRules returns the rules of m in their normal form, without those that
// a rule of exclude removes as a whole; such a rule names no objects.
func reachedRules(m, exclude *admissionregistrationv1.MatchResources, deletions bool) []admissionregistrationv1.RuleWithOperations {
	var out []admissionregistrationv1.RuleWithOperations
	for i := range m.ResourceRules {
		if r, ok := normalRuleOf(&m.ResourceRules[i].RuleWithOperations, deletions); ok && !excludes(exclude, &r) {
			out = append(out, r)
		}
	}
	return out
}

func excludes(m *admissionregistrationv1.MatchResources, r *admissionregistrationv1.RuleWithOperations) bool {
	return slices.ContainsFunc(m.ExcludeResourceRules, func(e admissionregistrationv1.NamedRuleWithOperations) bool {
		by, ok := normalRule(&e.RuleWithOperations)
		return ok && len(e.ResourceNames) == 0 && ruleCovers(&by, r)
	})
}

// narrowRules returns the rules of a policy, whose matchConstraints are m,
// restricted to requests that a binding matches.
func narrowRules(rules []admissionregistrationv1.RuleWithOperations, m, binding *admissionregistrationv1.MatchResources) []admissionregistrationv1.RuleWithOperations {
	exact := !matchesEquivalent(m) && !matchesEquivalent(binding)
	if len(binding.ResourceRules) > 0 {
		own := reachedRules(binding, binding, false)
		var both []admissionregistrationv1.RuleWithOperations
		for i := range rules {
			for j := range own {
				if r, ok := bothRules(&rules[i], &own[j], exact); ok {
					both = append(both, r)
				}
			}
		}
		rules = both
	}
	// A request that a rule matches by an equivalent resource is excluded by
	// that resource only if the binding matches equivalent resources.
	if !matchesEquivalent(m) || matchesEquivalent(binding) {
		rules = slices.DeleteFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool { return excludes(binding, &r) })
	}
	return rules
}

// bothRules returns a rule for the requests that a and b, which are normal,
// both match; ok is false if there are none. Its groups and versions are those
// of a unless exact. Equivalent resources have the same name, so names can
// always be compared.
func bothRules(a, b *admissionregistrationv1.RuleWithOperations, exact bool) (r admissionregistrationv1.RuleWithOperations, ok bool) {
	r = *a.DeepCopy()
	r.Operations = slices.DeleteFunc(r.Operations, func(op admissionregistrationv1.OperationType) bool { return !slices.Contains(b.Operations, op) })
	r.Resources = nil
	for _, x := range a.Resources {
		for _, y := range b.Resources {
			if both, ok := bothResources(x, y); ok {
				r.Resources = append(r.Resources, both)
			}
		}
	}
	if exact {
		r.APIGroups, r.APIVersions = bothLists(a.APIGroups, b.APIGroups), bothLists(a.APIVersions, b.APIVersions)
	}
	switch {
	case *a.Scope == admissionregistrationv1.AllScopes:
		*r.Scope = *b.Scope
	case *b.Scope != admissionregistrationv1.AllScopes && *a.Scope != *b.Scope:
		return r, false
	}
	return normalRule(&r)
}

func bothLists(a, b []string) []string {
	switch {
	case a[0] == wildcard:
		return b
	case b[0] == wildcard:
		return a
	}
	return intersect(a, b)
}

// bothResources returns the resource that two resources of rules, such as
// pods/*, both match.
func bothResources(a, b string) (string, bool) {
	resourceA, subA, _ := strings.Cut(a, "/")
	resourceB, subB, _ := strings.Cut(b, "/")
	resource, ok := bothWords(resourceA, resourceB)
	sub, okSub := bothWords(subA, subB)
	return join(resource, sub), ok && okSub
}

func bothWords(a, b string) (string, bool) {
	switch {
	case a == wildcard:
		return b, true
	case b == wildcard:
		return a, true
	}
	return a, a == b
}

// namesOf returns the names that rules are restricted to, nil if one of them is
// not restricted or there are too many.
func namesOf(rules []admissionregistrationv1.NamedRuleWithOperations) []string {
	var names []string
	for i := range rules {
		if len(rules[i].ResourceNames) == 0 {
			return nil
		}
		names = append(names, rules[i].ResourceNames...)
	}
	names = sortedSet(names)
	if len(names) == 0 || len(names) > maxNames || names[0] == "" {
		return nil
	}
	return names
}

// bothObjects returns a selector for the requests that both selectors match, as
// far as one selector can say it. rules say which requests there are.
func bothObjects(a, b conjunction, rules []admissionregistrationv1.RuleWithOperations) conjunction {
	switch {
	case a.covers(b):
		return b
	case b.covers(a):
		return a
	case !slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(r.Operations, admissionregistrationv1.Update)
	}):
		return a.and(b)
	case len(a) > len(b):
		return a
	}
	return b
}

// Ungated returns r for a policy that is broken: it fails the requests that its
// conditions would exclude, too.
func (r *Reach) Ungated() *Reach {
	if r == nil || r.gates == nil {
		return r
	}
	out := *r
	out.gates = nil
	return &out
}

// Dispensable returns r for a policy that is not enforced: no request is refused because
// mapd cannot be asked about it.
func (r *Reach) Dispensable() *Reach {
	if r == nil {
		return nil
	}
	out := *r
	out.group.FailurePolicy = admissionregistrationv1.Ignore
	return &out
}

// classify sets class and free. Gates are not part of a class, so they do not
// influence how policies are divided: each entry has the gates of all its
// policies.
func (r *Reach) classify() {
	r.free = requirementRef{at: r.namespaces.free()}
	if r.free.at < 0 {
		r.free = requirementRef{objects: true, at: r.objects.free()}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%t", r.equivalent)
	for i := range r.rules {
		b.WriteString(" " + key(&r.rules[i]))
	}
	for i, c := range []conjunction{r.namespaces, r.objects} {
		fmt.Fprintf(&b, " %d:", i)
		for j, q := range c {
			fmt.Fprintf(&b, " %q %s", q.key, q.op)
			if r.free != (requirementRef{objects: i == 1, at: j}) {
				fmt.Fprintf(&b, " %q", q.values)
			}
		}
	}
	fmt.Fprintf(&b, " %q", r.names)
	r.class = b.String()
}

// requirement returns the requirement at p, or nil.
func (a *area) requirement(p requirementRef) *requirement {
	switch {
	case p.at < 0:
		return nil
	case p.objects:
		return &a.objects[p.at]
	}
	return &a.namespaces[p.at]
}

// without returns the area without one of its requirements.
func (a area) without(p requirementRef) area {
	if p.objects {
		a.objects = slices.Delete(slices.Clone(a.objects), p.at, p.at+1)
	} else {
		a.namespaces = slices.Delete(slices.Clone(a.namespaces), p.at, p.at+1)
	}
	return a
}

// A loss says how much wider the union of two areas is than the two; 0 means
// not at all. It orders unions and has no unit.
type loss int

// union returns the smallest area that contains all areas and that an entry can
// describe.
func union(areas []*area) area {
	out := *areas[0]
	rules := out.rules
	for _, a := range areas[1:] {
		out.equivalent = out.equivalent || a.equivalent
		out.names, out.gates = bothNames(out.names, a.names), bothGates(out.gates, a.gates)
		out.namespaces, _ = out.namespaces.or(a.namespaces)
		out.objects, _ = out.objects.or(a.objects)
		out.namespaces, out.objects = out.namespaces.bounded(), out.objects.bounded()
		if !equalRules(out.rules, a.rules) {
			rules = append(slices.Clip(rules), a.rules...)
		}
	}
	if len(rules) > len(out.rules) {
		out.rules = mergeRules(rules)
	}
	return out
}

// loss returns the loss of the union of both. A union is exact if the areas
// differ in one respect and the union of that one is exact.
func (a *area) loss(b *area) (lost loss) {
	if a.covers(b) || b.covers(a) {
		return 0
	}
	differ := 0
	selectors := func(a, b conjunction, weight loss) {
		if a.equal(b) {
			return
		}
		differ++
		union, exact := a.or(b)
		if short := union.bounded(); !exact || len(short) < len(union) {
			lost += weight * loss(1+len(a)+len(b)-2*len(short))
		}
	}
	selectors(a.namespaces, b.namespaces, 4) // whole Namespaces more
	selectors(a.objects, b.objects, 2)
	if !slices.Equal(a.names, b.names) {
		differ++
		if bothNames(a.names, b.names) == nil {
			lost += 2
		}
	}
	if !equalRules(a.rules, b.rules) {
		differ++
	}
	return lost + loss(max(0, differ-1))
}

func equalRules(a, b []admissionregistrationv1.RuleWithOperations) bool {
	return slices.EqualFunc(a, b, func(a, b admissionregistrationv1.RuleWithOperations) bool { return compareRules(a, b) == 0 })
}

// bothNames returns the names of objects of two areas, nil for every name.
func bothNames(a, b []string) []string {
	if a == nil || b == nil {
		return nil
	}
	if both := unite(a, b); len(both) <= maxNames {
		return both
	}
	return nil
}

// covers reports whether everything in b is in a, as far as it is easily seen.
func (a *area) covers(b *area) bool {
	return (a.equivalent || !b.equivalent) && a.namespaces.covers(b.namespaces) && a.objects.covers(b.objects) &&
		(a.names == nil || b.names != nil && within(b.names, a.names)) &&
		!slices.ContainsFunc(b.rules, func(r admissionregistrationv1.RuleWithOperations) bool {
			return !slices.ContainsFunc(a.rules, func(by admissionregistrationv1.RuleWithOperations) bool { return ruleCovers(&by, &r) })
		})
}

// meets reports whether one request may be in both areas. Objects without a
// Namespace, which no namespaceSelector excludes, do not count.
func (a *area) meets(b *area) bool {
	if a.namespaces.disjoint(b.namespaces) || a.names != nil && b.names != nil && len(intersect(a.names, b.names)) == 0 {
		return false
	}
	exact := !a.equivalent && !b.equivalent
	return slices.ContainsFunc(a.rules, func(r admissionregistrationv1.RuleWithOperations) bool {
		return slices.ContainsFunc(b.rules, func(by admissionregistrationv1.RuleWithOperations) bool {
			_, ok := bothRules(&r, &by, exact)
			return ok
		})
	})
}

// addTo writes the area into an entry that has what all entries share.
func (a *area) addTo(w *admissionregistrationv1.MutatingWebhook) {
	w.Rules = make([]admissionregistrationv1.RuleWithOperations, len(a.rules))
	for i := range a.rules {
		a.rules[i].DeepCopyInto(&w.Rules[i])
	}
	w.MatchPolicy = new(admissionregistrationv1.Exact)
	if a.equivalent {
		w.MatchPolicy = new(admissionregistrationv1.Equivalent)
	}
	w.NamespaceSelector, w.ObjectSelector = a.namespaces.addTo(w.NamespaceSelector), a.objects.addTo(w.ObjectSelector)
	if a.names != nil {
		quoted := make([]string, len(a.names))
		for i, n := range a.names {
			quoted[i] = quoteCEL(n)
		}
		w.MatchConditions = append(w.MatchConditions, admissionregistrationv1.MatchCondition{
			// A request without a name yet, as with generateName, lacks the
			// field.
			Name: NamesCondition, Expression: "has(request.name) && request.name in [" + strings.Join(quoted, ", ") + "]",
		})
	}
	if a.gates != nil {
		w.MatchConditions = append(w.MatchConditions, admissionregistrationv1.MatchCondition{
			Name: ConditionsCondition, Expression: joinGates(a.gates, " || "),
		})
	}
}

// NamesCondition is the name of the condition that excludes other objects from
// an entry whose policies name theirs.
const NamesCondition = "resource-names"
