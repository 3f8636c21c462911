package translate

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// ShapeOf returns a text for all parts of a mutator that its program depends on, without the
// values that the program reads from params. Mutators of the same shape have deeply equal
// policies.
func ShapeOf(m *legacy.Mutator) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", m.Kind, m.Location)
	for _, t := range m.Tests {
		fmt.Fprintf(&b, " test(%d %q)", t.Depth, t.Condition)
	}
	switch {
	case m.From != nil && m.From.Metadata != "":
		fmt.Fprintf(&b, " from(%s)", m.From.Metadata)
	case m.From != nil && m.From.External != nil:
		b.WriteString(" from(external)")
	case m.Set != nil:
		v := m.Set.Values
		fmt.Fprintf(&b, " set(%t %t %t %t)", m.Set.Prune, len(v) == 0, hasNumbers(v), len(distinct(v)) == len(v))
	case m.Image != nil:
		fmt.Fprintf(&b, " image(%t %t %t)", m.Image.Domain != "", m.Image.Path != "", m.Image.Tag != "")
	}
	matchShape(&b, m)
	return b.String()
}

func matchShape(b *strings.Builder, m *legacy.Mutator) {
	if s := m.Match.Scope; s == "Cluster" || s == "Namespaced" {
		fmt.Fprintf(b, " scope(%s)", s)
	}
	for i, entries := range [][]string{m.Match.Namespaces, m.Match.ExcludedNamespaces} {
		if len(entries) > 0 {
			fmt.Fprintf(b, " namespaces(%d %v %t)", i, patternKinds(entries), slices.ContainsFunc(entries, isEverything))
		}
	}
	if s := m.Match.LabelSelector; s != nil {
		fmt.Fprintf(b, " labels(%t %v)", len(s.MatchLabels) > 0, operators(s))
	}
	if p := m.Match.Name; p != "" && !isEverything(p) {
		fmt.Fprintf(b, " name(%d)", kindOf(p))
	}
	if mayBeNamespace(m) {
		b.WriteString(" Namespace")
	}
}

// operators returns the operators of a selector, in order.
func operators(s *metav1.LabelSelector) []metav1.LabelSelectorOperator {
	var ops []metav1.LabelSelectorOperator
	for _, r := range s.MatchExpressions {
		ops = append(ops, r.Operator)
	}
	slices.Sort(ops)
	return slices.Compact(ops)
}
