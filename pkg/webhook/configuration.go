package webhook

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/policy"
)

const (
	// ConfigurationName is the name of the MutatingWebhookConfiguration.
	ConfigurationName = "000.mapd.dev"
	// ValidationName is the name of the ValidatingWebhookConfiguration.
	ValidationName = "mapd.dev"
	// ValidatePath is where policies and bindings are validated.
	ValidatePath = "/validate"
)

// Group is the policies that one webhook entry stands for.
type Group struct {
	FailurePolicy      admissionregistrationv1.FailurePolicyType
	ReinvocationPolicy admissionregistrationv1.ReinvocationPolicyType
}

// Groups returns all groups.
func Groups() []Group {
	return []Group{
		{admissionregistrationv1.Fail, admissionregistrationv1.NeverReinvocationPolicy},
		{admissionregistrationv1.Ignore, admissionregistrationv1.NeverReinvocationPolicy},
		{admissionregistrationv1.Fail, admissionregistrationv1.IfNeededReinvocationPolicy},
		{admissionregistrationv1.Ignore, admissionregistrationv1.IfNeededReinvocationPolicy},
	}
}

// GroupOf returns the group of a policy.
func GroupOf(obj *admissionregistrationv1.MutatingAdmissionPolicy) Group {
	return Groups()[0]
}

// Path is where the group's reviews go.
func (g Group) Path() string {
	return strings.ToLower("/mutate/" + string(g.FailurePolicy) + "/" + string(g.ReinvocationPolicy))
}

// Name is the name of the group's webhook.
func (g Group) Name() string {
	return strings.ToLower(string(g.FailurePolicy) + "." + string(g.ReinvocationPolicy) + ".mapd.dev")
}

// Configuration derives the webhook entries of bound policies.
func Configuration(policies []*policy.Policy, base admissionregistrationv1.MutatingWebhook) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ConfigurationName}}
}

// Unroutable returns the names of the policies whose rules no webhook entry can have.
func Unroutable(policies []*policy.Policy) []string { return nil }

// ValidationConfiguration is the configuration of the validating webhook.
func ValidationConfiguration(base admissionregistrationv1.ValidatingWebhook) *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: ValidationName}}
}

// MatchConditions are the exemptions of every entry.
func MatchConditions(user string) []admissionregistrationv1.MatchCondition { return nil }
