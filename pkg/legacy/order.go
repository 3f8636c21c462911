package legacy

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Idempotent reports whether applying the mutator to its own result never changes anything. The
// one exception is an AssignImage that sets only a path without a slash: "p" makes "p:1/z" of
// "x:1/z", where "1/z" counts as the tag, and "p:1" is then parsed as a domain (Gatekeeper spec
// §6.3).
func Idempotent(m *Mutator) bool {
	return m.Image == nil || m.Image.Domain != "" || m.Image.Tag != "" || strings.Contains(m.Image.Path, "/")
}

// Affects reports whether b, if it would change nothing before, may change something after a
// changed an object. It may be true too often, but never false by mistake. In every pass but
// the first, only mutators that another one has affected since they last ran have to run; the
// others change nothing.
//
// Commute is stricter: both orders must have the same result.
func Affects(a, b *Mutator) bool {
	switch {
	case a == b:
		return !Idempotent(a)
	case a.WritesKind():
		return true
	default:
		return (a.enablesMatch(b) || affectsLocation(a, b)) && meetKinds(a, b)
	}
}

// RefusesPending reports whether b, an AssignImage or a ModifySet, refuses objects in
// which a has external data pending (Gatekeeper spec §11.4).
func RefusesPending(a, b *Mutator) bool {
	return a.Asks() && (b.Image != nil || b.Set != nil) && len(a.Location) == len(b.Location) && a.Location.Meets(b.Location) && meetKinds(a, b)
}

// Commute reports whether a and b have the same result in either order. It may be false too
// often, but never true by mistake.
func Commute(a, b *Mutator) bool {
	if a.WritesKind() || b.WritesKind() {
		return false
	}
	shared, how := meet(a.Location, b.Location)
	apart := how == fieldsDiffer || how == elementsDiffer
	if apart && !notices(a, b, shared) && !notices(b, a, shared) &&
		!a.writesLabelOf(b) && !b.writesLabelOf(a) &&
		// New elements of a list are in the order in which they were appended.
		!(how == elementsDiffer && a.creates(shared) && b.creates(shared)) {
		return true
	}
	return !meetKinds(a, b)
}

// meeting is how two locations diverge.
type meeting int

const (
	within         meeting = iota // they do not: one is equal to, or below, the other
	fieldsDiffer                  // at two fields of one object
	elementsDiffer                // at two elements of one list
	shapesDiffer                  // they contradict each other about the shape
)

// meet compares two locations node by node for as long as they may lead to the same places, and
// returns how many nodes they share. Mutators that contradict each other about the shape of the
// same objects are in conflict.
func meet(a, b Path) (shared int, how meeting) {
	for i := range min(len(a), len(b)) {
		x, y := &a[i], &b[i]
		switch {
		case x.List != y.List:
			return i, shapesDiffer
		case !x.List && x.Name != y.Name:
			return i, fieldsDiffer
		case x.List && x.Name != y.Name:
			return i, shapesDiffer
		case x.List && !x.Glob && !y.Glob && x.Value != y.Value:
			return i, elementsDiffer
		}
	}
	return min(len(a), len(b)), within
}

// Meets reports whether two paths may lead through the same places up to the end of the shorter
// path.
func (p Path) Meets(other Path) bool {
	_, how := meet(p, other)
	return how == within
}

// creates reports whether a mutator may create a missing node at a depth of its location. It
// creates the whole rest of the location or nothing, so no glob and no path test may follow.
// Unlike in Gatekeeper, a ModifySet that prunes creates nothing in mapd (Gatekeeper spec §5,
// T21).
func (m *Mutator) creates(depth int) bool {
	if m.Set != nil && m.Set.Prune {
		return false
	}
	for _, t := range m.Tests {
		if t.Depth >= depth && t.Condition != MustNotExist {
			return false
		}
	}
	for d := depth; d < len(m.Location); d++ {
		if m.Location[d].Glob || m.isKey(d) {
			return false
		}
	}
	return true
}

// isKey reports whether the node at a depth is the key field of the element before it. It
// exists as soon as the element exists, and nothing is below it.
func (m *Mutator) isKey(depth int) bool {
	if depth == 0 {
		return false
	}
	elem, node := m.Location[depth-1], m.Location[depth]
	return elem.List && !elem.Glob && !node.List && node.Name == elem.Name
}

// defaults reports whether a mutator writes only where nothing exists yet.
func (m *Mutator) defaults() bool {
	c, ok := m.Test(len(m.Location) - 1)
	return ok && c == MustNotExist
}

// enables reports whether a may create something that b needs, among the nodes that they share:
// a node that has to exist, or an element of a list of which b visits every element.
func enables(a, b *Mutator, shared int) bool {
	return anyShared(a, b, shared, func(c Condition) bool { return c == MustExist })
}

// notices reports whether a may create something that changes the effect of b, even if b then
// does less.
func notices(a, b *Mutator, shared int) bool {
	return anyShared(a, b, shared, func(Condition) bool { return true })
}

func anyShared(a, b *Mutator, shared int, relevant func(Condition) bool) bool {
	for d := range shared {
		c, tested := b.Test(d)
		newElement := b.Location[d].Glob && !a.Location[d].Glob
		if (newElement || tested && relevant(c)) && a.creates(d) {
			return true
		}
	}
	return false
}

// affectsLocation is Affects for locations alone.
func affectsLocation(a, b *Mutator) bool {
	shared, how := meet(a.Location, b.Location)
	switch {
	case shared == 0:
		return how == shapesDiffer
	case how == shapesDiffer:
		return true
	case how != within:
		return enables(a, b, shared)
	case len(a.Location) >= len(b.Location):
		return affectsWithin(a, b, shared)
	case a.defaults():
		// A node that is missing for a is missing for b too. If b could create it, b would not
		// have needed a to do so.
		return enables(a, b, shared) || !b.creates(shared-1)
	default:
		return true
	}
}

// affectsWithin is affectsLocation for an a whose location is that of b, or below.
func affectsWithin(a, b *Mutator, shared int) bool {
	switch {
	case b.defaults():
		return false // there is something now, if there was not before
	case enables(a, b, shared):
		return true
	case a.Set != nil && b.Set != nil:
		return a.Set.Prune != b.Set.Prune && haveCommon(a.Set.Values, b.Set.Values)
	case a.Image != nil && b.Image != nil:
		return !Idempotent(a) || !Idempotent(b) || contradict(*a.Image, *b.Image)
	default:
		return true
	}
}

// haveCommon reports whether two lists have a common value. It treats 1 and 1.0 as equal; some
// of Gatekeeper's comparisons do and others do not.
func haveCommon(a, b []any) bool {
	for _, x := range a {
		x = floats(x)
		if slices.ContainsFunc(b, func(y any) bool { return tree.Equal(x, floats(y)) }) {
			return true
		}
	}
	return false
}

func contradict(a, b Image) bool {
	differ := func(x, y string) bool { return x != "" && y != "" && x != y }
	return differ(a.Domain, b.Domain) || differ(a.Path, b.Path) || differ(a.Tag, b.Tag)
}

// WritesKind reports whether the mutator changes the kind of an object, and
// with it which mutators apply.
func (m *Mutator) WritesKind() bool {
	return len(m.Location) > 0 && (m.Location[0].Name == "kind" || m.Location[0].Name == "apiVersion")
}

// Label returns the label that the mutator sets, if it sets one.
func (m *Mutator) Label() (name string, ok bool) {
	if m.Kind != AssignMetadata || m.Location[1].Name != "labels" {
		return "", false
	}
	return m.Location[2].Name, true
}

// selectors yields the selectors that are matched against an object's own labels. A
// namespaceSelector is matched against the labels of a Namespace.
func (m *Mutator) selectors(yield func(*metav1.LabelSelector) bool) {
	if s := m.Match.LabelSelector; s != nil && !yield(s) {
		return
	}
	if s := m.Match.NamespaceSelector; s != nil && m.aboutNamespaces() {
		yield(s)
	}
}

func (m *Mutator) aboutNamespaces() bool {
	namespace := schema.GroupVersionKind{Kind: "Namespace"}
	return m.InKinds(namespace) && (m.Kind == AssignMetadata || slices.ContainsFunc(m.ApplyTo, func(a ApplyTo) bool {
		return slices.Contains(a.Groups, "") && slices.Contains(a.Kinds, "Namespace")
	}))
}

// writesLabelOf reports whether m sets a label that a selector of b reads.
func (m *Mutator) writesLabelOf(b *Mutator) bool {
	key, ok := m.Label()
	if !ok {
		return false
	}
	for s := range b.selectors {
		if slices.ContainsFunc(api.Requirements(s), func(r metav1.LabelSelectorRequirement) bool { return r.Key == key }) {
			return true
		}
	}
	return false
}

// enablesMatch reports whether the mutator may set a label that makes b match. It sets only
// missing labels, so a selector that requires the label to be missing does not count.
func (m *Mutator) enablesMatch(b *Mutator) bool {
	key, ok := m.Label()
	if !ok {
		return false
	}
	value, known := m.From.Value.(string)
	for s := range b.selectors {
		if selectsWith(s, key, func(v string) bool { return !known || v == value }) {
			return true
		}
	}
	return false
}

// selectsWith reports whether a selector may match with a label and not without it. may reports
// whether the label may have one of the values.
func selectsWith(s *metav1.LabelSelector, key string, may func(string) bool) bool {
	wanted := false
	for _, r := range api.Requirements(s) {
		switch {
		case r.Key != key:
		case r.Operator == metav1.LabelSelectorOpDoesNotExist:
			return false
		case r.Operator == metav1.LabelSelectorOpExists:
			wanted = true
		case r.Operator == metav1.LabelSelectorOpIn:
			if !slices.ContainsFunc(r.Values, may) {
				return false
			}
			wanted = true
		}
	}
	return wanted
}

// meetKinds reports whether both may apply to the same request: to one kind and one operation.
func meetKinds(a, b *Mutator) bool {
	for x := range a.scopes {
		for y := range b.scopes {
			if x.Operations&y.Operations != 0 && meetScopes(x, y, a.Match.Kinds, b.Match.Kinds) {
				return true
			}
		}
	}
	return false
}

// anyKind reports whether there is a kind that the mutator applies to.
func (m *Mutator) anyKind() bool {
	for s := range m.scopes {
		if meetScopes(s, scope{}, m.Match.Kinds, nil) {
			return true
		}
	}
	return false
}

// scope is an entry of applyTo. A nil list stands for any.
type scope struct {
	ApplyTo
	Operations operations
}

// scopes yields the scopes of the mutator. It is an iterator because each of thousands of
// mutators may be compared with each other, and a list would be an allocation each time.
func (m *Mutator) scopes(yield func(scope) bool) {
	if m.Kind == AssignMetadata {
		yield(scope{Operations: create | update})
		return
	}
	for _, a := range m.ApplyTo {
		if !yield(scope{a, a.operations()}) {
			return
		}
	}
}

func meetScopes(x, y scope, a, b []MatchKinds) bool {
	if !common(x.Versions, y.Versions) {
		return false
	}
	if len(a) == 0 {
		a = []MatchKinds{{}}
	}
	if len(b) == 0 {
		b = []MatchKinds{{}}
	}
	for _, k := range a {
		for _, l := range b {
			if common(x.Groups, y.Groups, open(k.APIGroups), open(l.APIGroups)) && common(x.Kinds, y.Kinds, open(k.Kinds), open(l.Kinds)) {
				return true
			}
		}
	}
	return false
}

// open returns nil for a list of match.kinds that matches everything.
func open(list []string) []string {
	if len(list) == 0 || slices.Contains(list, "*") {
		return nil
	}
	return list
}

// common reports whether all lists have a common element. A nil list has every element.
func common(lists ...[]string) bool {
	i := slices.IndexFunc(lists, func(l []string) bool { return l != nil })
	return i < 0 || slices.ContainsFunc(lists[i], func(s string) bool {
		return !slices.ContainsFunc(lists[i+1:], func(l []string) bool { return l != nil && !slices.Contains(l, s) })
	})
}
