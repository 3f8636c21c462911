package modulepolicies

import (
	"slices"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
)

// Kubewarden's policies see deletions, and those of one failurePolicy share an entry.
func TestNewEntries(t *testing.T) {
	policy := func(name string, failurePolicy admissionregistrationv1.FailurePolicyType, operations ...admissionregistrationv1.OperationType) *webhookconfig.Reach {
		return webhookconfig.ReachWithDeletions(&admissionregistrationv1.MutatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
				FailurePolicy: &failurePolicy, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
				MatchConstraints: &admissionregistrationv1.MatchResources{
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": name}},
					ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: operations, Rule: admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
					}}},
				},
			},
		})
	}
	url := "https://example.com"
	base := admissionregistrationv1.MutatingWebhook{ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url}}
	reaches := []*webhookconfig.Reach{
		policy("a", admissionregistrationv1.Ignore, "CREATE"), policy("b", admissionregistrationv1.Fail, "DELETE"), policy("c", admissionregistrationv1.Fail, "*"),
	}
	for _, tt := range []struct {
		mutating bool
		want     []string
	}{
		{true, []string{"fail.guests.mapd.dev https://example.com/mutate/guests/fail", "ignore.guests.mapd.dev https://example.com/mutate/guests/ignore"}},
		{false, []string{"fail.validators.mapd.dev https://example.com/validate/guests/fail", "ignore.validators.mapd.dev https://example.com/validate/guests/ignore"}},
	} {
		var got []string
		for _, w := range newEntries(reaches, tt.mutating, base) {
			got = append(got, w.Name+" "+*w.ClientConfig.URL)
			if !IsEntry(w.Name) {
				t.Errorf("%s is not an entry for guests", w.Name)
			}
			deletes := slices.ContainsFunc(w.Rules, func(r admissionregistrationv1.RuleWithOperations) bool {
				return slices.Contains(r.Operations, admissionregistrationv1.Delete)
			})
			if deletes != (*w.FailurePolicy == admissionregistrationv1.Fail) {
				t.Errorf("%s: %v", w.Name, w.Rules)
			}
			// Nobody but the namespaces of the policies is called for.
			if w.NamespaceSelector == nil || len(w.NamespaceSelector.MatchExpressions)+len(w.NamespaceSelector.MatchLabels) == 0 {
				t.Errorf("%s selects all namespaces", w.Name)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
	if got := newEntries(nil, true, base); len(got) != 0 {
		t.Errorf("%v for no policies", got)
	}
}
