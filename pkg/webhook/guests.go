package webhook

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// Paths of Options.Guests, below which the failurePolicy of the entry follows. Mutating
// entries lead to the first, validating ones to the second.
const (
	GuestsPath     = "/mutate/guests"
	ValidatorsPath = "/validate/guests"
)

const (
	guestsSuffix     = ".guests.mapd.dev"
	validatorsSuffix = ".validators.mapd.dev"
)

// IsGuestEntry reports whether an entry with that name is for Kubewarden's policies.
func IsGuestEntry(name string) bool {
	return strings.HasSuffix(name, guestsSuffix) || strings.HasSuffix(name, validatorsSuffix)
}

// GuestPath returns the path for policies with a failurePolicy, those that may change
// objects or the others.
func GuestPath(mutating bool, failurePolicy admissionregistrationv1.FailurePolicyType) string {
	path := ValidatorsPath
	if mutating {
		path = GuestsPath
	}
	return path + "/" + strings.ToLower(string(failurePolicy))
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
		w.ClientConfig = clientConfig(base.DeepCopy().ClientConfig, GuestPath(mutating, *w.FailurePolicy))
	}
	return list
}
