package api

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SelectsAll reports whether a selector, which may be nil, has no requirements.
func SelectsAll(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

// Requirements returns the requirements of a selector: matchLabels sorted by key, each as an In
// with one value, and then matchExpressions.
func Requirements(s *metav1.LabelSelector) []metav1.LabelSelectorRequirement {
	var out []metav1.LabelSelectorRequirement
	for _, k := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		out = append(out, metav1.LabelSelectorRequirement{Key: k, Operator: metav1.LabelSelectorOpIn, Values: []string{s.MatchLabels[k]}})
	}
	return append(out, s.MatchExpressions...)
}
