package webhookconfig

import (
	"cmp"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/api"
)

// A requirement is one requirement of a label selector. Its values are sorted and
// different.
type requirement struct {
	key    string
	op     metav1.LabelSelectorOperator
	values []string
}

// A conjunction is a label selector in its normal form: requirements that all have
// to hold, sorted, at most one for each key and operator. The empty one selects
// everything.
type conjunction []requirement

// conjunctionOf returns the normal form of a selector. For a selector that a
// server cannot parse it returns the empty one: requests then get an error, so
// all of them have to reach mapd.
func conjunctionOf(s *metav1.LabelSelector) conjunction {
	if api.SelectsAll(s) {
		return nil
	}
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		return nil
	}
	var out conjunction
	for _, e := range api.Requirements(s) {
		out = append(out, requirement{e.Key, e.Operator, sortedSet(e.Values)})
	}
	return out.normal()
}

// parses reports whether a server can parse the selectors of m, which may be
// nil.
func parses(m *admissionregistrationv1.MatchResources) bool {
	if m == nil {
		return true
	}
	_, err := metav1.LabelSelectorAsSelector(m.NamespaceSelector)
	_, errObjects := metav1.LabelSelectorAsSelector(m.ObjectSelector)
	return err == nil && errObjects == nil
}

// normal joins the requirements of one key and operator. It may reuse c.
func (c conjunction) normal() conjunction {
	slices.SortFunc(c, compareRequirements)
	var out conjunction
	for _, r := range c {
		last := len(out) - 1
		if last < 0 || out[last].key != r.key || out[last].op != r.op {
			out = append(out, r)
			continue
		}
		switch r.op {
		case metav1.LabelSelectorOpIn:
			// Without a common value nothing is selected, which a list of
			// values cannot express.
			if both := intersect(out[last].values, r.values); len(both) > 0 {
				out[last].values = both
			}
		case metav1.LabelSelectorOpNotIn:
			out[last].values = unite(out[last].values, r.values)
		}
	}
	return out
}

// and returns the conjunction of both.
func (c conjunction) and(d conjunction) conjunction {
	return append(slices.Clone(c), d...).normal()
}

func compareRequirements(a, b requirement) int {
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.op, b.op), slices.Compare(a.values, b.values))
}

func (c conjunction) equal(d conjunction) bool {
	return slices.EqualFunc(c, d, func(a, b requirement) bool { return compareRequirements(a, b) == 0 })
}

// covers reports whether c selects everything that d selects, as far as single
// requirements show it.
func (c conjunction) covers(d conjunction) bool {
	return !slices.ContainsFunc(c, func(r requirement) bool {
		return !slices.ContainsFunc(d, func(by requirement) bool { return by.implies(r) })
	})
}

// Covers reports whether the selectors of wide select everything that those of
// narrow select.
func Covers(wide, narrow admissionregistrationv1.MutatingWebhook) bool {
	return conjunctionOf(wide.NamespaceSelector).covers(conjunctionOf(narrow.NamespaceSelector)) &&
		conjunctionOf(wide.ObjectSelector).covers(conjunctionOf(narrow.ObjectSelector))
}

// implies reports whether all labels that meet r meet o.
func (r requirement) implies(o requirement) bool {
	if r.key != o.key {
		return false
	}
	switch o.op {
	case metav1.LabelSelectorOpIn:
		return r.op == metav1.LabelSelectorOpIn && within(r.values, o.values)
	case metav1.LabelSelectorOpNotIn:
		return r.op == metav1.LabelSelectorOpDoesNotExist ||
			r.op == metav1.LabelSelectorOpNotIn && within(o.values, r.values) ||
			r.op == metav1.LabelSelectorOpIn && len(intersect(r.values, o.values)) == 0
	case metav1.LabelSelectorOpExists:
		return r.op == metav1.LabelSelectorOpExists || r.op == metav1.LabelSelectorOpIn
	default:
		return r.op == o.op
	}
}

// or returns a selector of everything that c and d select; exact reports
// whether it selects nothing else. It keeps the requirements that both have,
// with the values of both.
func (c conjunction) or(d conjunction) (union conjunction, exact bool) {
	switch {
	case c.covers(d):
		return c, true
	case d.covers(c):
		return d, true
	}
	differences := 0
	for len(c) > 0 || len(d) > 0 {
		var order int
		switch {
		case len(c) == 0:
			order = 1
		case len(d) == 0:
			order = -1
		default:
			order = cmp.Or(cmp.Compare(c[0].key, d[0].key), cmp.Compare(c[0].op, d[0].op))
		}
		switch {
		case order < 0:
			c, differences = c[1:], 2 // one side does not ask for it
			continue
		case order > 0:
			d, differences = d[1:], 2
			continue
		}
		r := c[0]
		if !slices.Equal(r.values, d[0].values) {
			differences++
			if r.op == metav1.LabelSelectorOpIn {
				r.values = unite(r.values, d[0].values)
			} else {
				r.values = intersect(r.values, d[0].values)
			}
		}
		c, d = c[1:], d[1:]
		if r.op != metav1.LabelSelectorOpNotIn || len(r.values) > 0 {
			union = append(union, r)
		}
	}
	return union, differences <= 1
}

// disjoint reports whether no labels are selected by both, as far as the values
// of one key show it.
func (c conjunction) disjoint(d conjunction) bool {
	return slices.ContainsFunc(c, func(r requirement) bool {
		return slices.ContainsFunc(d, func(o requirement) bool {
			if r.key != o.key {
				return false
			}
			in := func(r requirement) bool { return r.op == metav1.LabelSelectorOpIn }
			return in(r) && in(o) && len(intersect(r.values, o.values)) == 0 ||
				in(r) && o.op == metav1.LabelSelectorOpNotIn && within(r.values, o.values) ||
				in(o) && r.op == metav1.LabelSelectorOpNotIn && within(o.values, r.values) ||
				r.op == metav1.LabelSelectorOpDoesNotExist && (in(o) || o.op == metav1.LabelSelectorOpExists) ||
				o.op == metav1.LabelSelectorOpDoesNotExist && (in(r) || r.op == metav1.LabelSelectorOpExists)
		})
	})
}

// bounded drops the requirements whose lists are longer than maxValues.
func (c conjunction) bounded() conjunction {
	long := func(r requirement) bool { return len(r.values) > maxValues }
	if !slices.ContainsFunc(c, long) {
		return c
	}
	return slices.DeleteFunc(slices.Clone(c), long)
}

// addTo appends the requirements to those of a selector, which may be nil.
func (c conjunction) addTo(s *metav1.LabelSelector) *metav1.LabelSelector {
	if len(c) == 0 {
		return s
	}
	if s == nil {
		s = &metav1.LabelSelector{}
	}
	for _, r := range c {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: r.key, Operator: r.op, Values: slices.Clone(r.values)})
	}
	return s
}

// free returns the index of the requirement in which selectors are most likely
// to differ, -1 if there is none: the name of a Namespace, or else the first
// list.
func (c conjunction) free() int {
	at := -1
	for i, r := range c {
		switch {
		case r.op != metav1.LabelSelectorOpIn && r.op != metav1.LabelSelectorOpNotIn:
		case r.op == metav1.LabelSelectorOpIn && r.key == corev1.LabelMetadataName:
			return i
		case at < 0 || r.op == metav1.LabelSelectorOpIn && c[at].op != r.op:
			at = i
		}
	}
	return at
}

// unite merges two sorted sets.
func unite(a, b []string) []string {
	return sortedSet(append(slices.Clone(a), b...))
}

// within reports whether all contains each of some; both are sorted sets.
func within(some, all []string) bool { return len(intersect(some, all)) == len(some) }

// intersect returns what two sorted sets have in common.
func intersect(a, b []string) []string {
	var out []string
	for _, s := range a {
		if _, ok := slices.BinarySearch(b, s); ok {
			out = append(out, s)
		}
	}
	return out
}
