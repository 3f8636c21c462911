package webhookconfig

import (
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/pkg/webhook"
)

const (
	modulesSuffix    = ".guests.mapd.dev"
	validatorsSuffix = ".validators.mapd.dev"
)

// IsModuleEntry reports whether an entry with that name is for Kubewarden's policies.
func IsModuleEntry(name string) bool {
	return strings.HasSuffix(name, modulesSuffix) || strings.HasSuffix(name, validatorsSuffix)
}

// ModuleReach is ReachOf for a policy of Kubewarden's, which sees deletions.
func ModuleReach(p *admissionregistrationv1.MutatingAdmissionPolicy) *Reach {
	return reachOf(p, nil, true)
}

// ModuleEntries returns the entries for policies of Kubewarden's, at most one for each
// failurePolicy: mutating ones if mutating is set, else those of a validating
// configuration. base is as for Configuration.
func ModuleEntries(reaches []*Reach, mutating bool, base admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
	entries, _ := Divide(reaches)
	list := Configuration(Undivide(entries), base).Webhooks
	for i := range list {
		w := &list[i]
		suffix := validatorsSuffix
		if mutating {
			suffix = modulesSuffix
		}
		w.Name = strings.ToLower(string(*w.FailurePolicy)) + suffix
		w.ClientConfig = clientConfig(base.DeepCopy().ClientConfig, webhook.ModulePath(mutating, *w.FailurePolicy))
	}
	return list
}
