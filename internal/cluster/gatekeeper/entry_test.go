package gatekeeper

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
)

func TestNewEntry(t *testing.T) {
	pods := admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{"CREATE"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
	}
	updates := *pods.DeepCopy()
	updates.Operations = []admissionregistrationv1.OperationType{"UPDATE"}
	nothing := *pods.DeepCopy()
	nothing.Resources = nil
	base := admissionregistrationv1.MutatingWebhook{
		ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://mapd.example:8443/")},
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"mapd-system"}},
		}},
		MatchConditions: webhookconfig.MatchConditions("me"),
		TimeoutSeconds:  new(int32(3)),
	}
	before := base.DeepCopy()

	if got := newEntry(nil, base); got != nil {
		t.Errorf("newEntry(no rules) = %v, want nil", got)
	}
	if got := newEntry([]admissionregistrationv1.RuleWithOperations{nothing}, base); got != nil {
		t.Errorf("newEntry(a rule without resources) = %v, want nil", got)
	}
	got := newEntry([]admissionregistrationv1.RuleWithOperations{updates, nothing, pods}, base)
	want := &admissionregistrationv1.MutatingWebhook{
		Name:         "legacy.mapd.dev",
		ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: new("https://mapd.example:8443/mutate/legacy")},
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE"},
			Rule: admissionregistrationv1.Rule{
				APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: new(admissionregistrationv1.AllScopes),
			},
		}},
		FailurePolicy: new(admissionregistrationv1.Ignore), MatchPolicy: new(admissionregistrationv1.Exact),
		ReinvocationPolicy: new(admissionregistrationv1.NeverReinvocationPolicy), SideEffects: new(admissionregistrationv1.SideEffectClassNone),
		NamespaceSelector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"mapd-system"}},
			{Key: "admission.gatekeeper.sh/ignore", Operator: metav1.LabelSelectorOpDoesNotExist},
		}},
		TimeoutSeconds: new(int32(3)), AdmissionReviewVersions: []string{"v1"},
	}
	var names []string
	for _, c := range got.MatchConditions {
		names = append(names, c.Name)
	}
	got.MatchConditions = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("newEntry (- want):\n%s", diff)
	}
	if got, want := strings.Join(names, " "), "not-mapd-policies not-auth-reviews not-mapd-itself not-gatekeeper-objects not-gatekeeper-itself"; got != want {
		t.Errorf("conditions %s, want %s", got, want)
	}
	if diff := cmp.Diff(before, &base); diff != "" {
		t.Errorf("newEntry has modified base (- before):\n%s", diff)
	}
}
