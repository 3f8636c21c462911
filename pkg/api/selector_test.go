package api

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRequirements(t *testing.T) {
	s := &metav1.LabelSelector{
		MatchLabels:      map[string]string{"b": "2", "a": "1"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpExists}},
	}
	if diff := cmp.Diff([]metav1.LabelSelectorRequirement{
		{Key: "a", Operator: metav1.LabelSelectorOpIn, Values: []string{"1"}},
		{Key: "b", Operator: metav1.LabelSelectorOpIn, Values: []string{"2"}},
		{Key: "a", Operator: metav1.LabelSelectorOpExists},
	}, Requirements(s)); diff != "" {
		t.Error(diff)
	}
	if SelectsAll(s) || !SelectsAll(nil) || !SelectsAll(&metav1.LabelSelector{}) || SelectsAll(&metav1.LabelSelector{MatchLabels: s.MatchLabels}) {
		t.Error("SelectsAll is wrong")
	}
}
