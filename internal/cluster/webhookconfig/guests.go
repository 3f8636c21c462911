package webhookconfig

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/pkg/webhook"
)

const (
	guestsSuffix     = ".guests.mapd.dev"
	validatorsSuffix = ".validators.mapd.dev"
)

// IsGuestEntry reports whether an entry with that name is for Kubewarden's policies.
func IsGuestEntry(name string) bool {
	return strings.HasSuffix(name, guestsSuffix) || strings.HasSuffix(name, validatorsSuffix)
}

// GuestReach is ReachOf for a policy of Kubewarden's, which sees deletions.
func GuestReach(p *admissionregistrationv1.MutatingAdmissionPolicy) *Reach {
	return reachOf(p, nil, true)
}

// GuestEntries returns the entries for policies of Kubewarden's, at most one for each
// failurePolicy: mutating ones if mutating is set, else those of a validating
// configuration. base is as for Configuration.
func GuestEntries(reaches []*Reach, mutating bool, base admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
	entries, _ := Divide(reaches)
	list := Configuration(Undivide(entries), base).Webhooks
	for i := range list {
		w := &list[i]
		suffix := validatorsSuffix
		if mutating {
			suffix = guestsSuffix
		}
		w.Name = strings.ToLower(string(*w.FailurePolicy)) + suffix
		w.ClientConfig = clientConfig(base.DeepCopy().ClientConfig, webhook.GuestPath(mutating, *w.FailurePolicy))
	}
	return list
}
