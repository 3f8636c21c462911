package webhookconfig

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Exempt returns a namespaceSelector that excludes the namespaces with these
// names. Its form does not depend on their order.
func Exempt(namespaces []string) *metav1.LabelSelector {
	names := sortedSet(named(namespaces))
	if len(names) == 0 {
		return nil
	}
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpNotIn, Values: names,
	}}}
}
