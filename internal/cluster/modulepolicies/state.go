package modulepolicies

import (
	"errors"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// State is the state of all of Kubewarden's policies.
type State struct {
	Policies []PolicyState
	// mutating and validating have the requests that policies match: mutating those of policies
	// that may change objects, validating those of all others.
	mutating, validating []*webhookconfig.Reach
}

// PolicyState is one policy and its state.
type PolicyState struct {
	// Object has the policy's apiVersion, kind, namespace, name, uid and generation. It
	// must not be modified.
	Object *unstructured.Unstructured
	ID     string
	// Err is the reason why the policy does not run: its failurePolicy decides about the requests
	// that it matches. If Undecoded is set, it is not known which requests these are, so the
	// policy has no effect.
	Err       error
	Undecoded bool
	// Loading: the module is still being loaded.
	Loading bool
}

func (s *State) add(of *stored, p *kubewarden.Policy, err error) {
	s.Policies = append(s.Policies, PolicyState{Object: of.Object, ID: p.ID(), Err: err, Loading: errors.Is(err, errNotLoaded)})
	reach := webhookconfig.ReachWithDeletions(p.Object())
	if reach == nil {
		return
	}
	if p.Mutating {
		s.mutating = append(s.mutating, reach)
	} else {
		s.validating = append(s.validating, reach)
	}
}

// Running returns the number of running policies.
func (s *State) Running() int {
	n := 0
	for i := range s.Policies {
		if s.Policies[i].Err == nil {
			n++
		}
	}
	return n
}

// faultsText returns an error on one line.
func faultsText(err error) string {
	var faults api.Faults
	if errors.As(err, &faults) {
		return faults.ToAggregate().Error()
	}
	return err.Error()
}

// Text returns the reason why the policy does not run, on one line; empty if it runs.
func (s *PolicyState) Text() string {
	if s.Err == nil {
		return ""
	}
	return faultsText(s.Err)
}

// Entries implements feature.State.
func (s *State) Entries(validating bool, base admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
	if validating {
		return newEntries(s.validating, false, base)
	}
	return newEntries(s.mutating, true, base)
}

const (
	modulesSuffix    = ".guests.mapd.dev"
	validatorsSuffix = ".validators.mapd.dev"
)

// IsEntry reports whether a webhook entry of that name is for Kubewarden's policies.
func IsEntry(name string) bool {
	return strings.HasSuffix(name, modulesSuffix) || strings.HasSuffix(name, validatorsSuffix)
}

// newEntries returns the entries for policies, at most one for each failurePolicy: of a mutating
// configuration if mutating is set, otherwise of a validating one.
func newEntries(reaches []*webhookconfig.Reach, mutating bool, base admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.MutatingWebhook {
	suffix := validatorsSuffix
	if mutating {
		suffix = modulesSuffix
	}
	entries, _ := webhookconfig.Divide(reaches)
	list := webhookconfig.Configuration(webhookconfig.Undivide(entries), base).Webhooks
	for i := range list {
		w := &list[i]
		named := webhookconfig.NewEntry(base, strings.ToLower(string(*w.FailurePolicy))+suffix, webhook.ModulePath(mutating, *w.FailurePolicy))
		w.Name, w.ClientConfig = named.Name, named.ClientConfig
	}
	return list
}

// ListingName is the ConfigMap in mapd's namespace with the states of Kubewarden's policies. mapd
// does not write their status, because Kubewarden may be running and writes it.
const ListingName = "mapd-kubewarden"

// States of a policy in the ConfigMap.
const (
	running = "running"
	loading = "loading" // its module is being fetched and compiled; until then the policy counts as broken
	broken  = "broken"  // its failurePolicy decides about the requests that it matches
	refused = "refused" // it is not known what it matches, so it has no effect
)

// Listing implements feature.State.
func (s *State) Listing() *feature.Listing {
	l := &feature.Listing{
		Name: ListingName, Key: "policies", About: "Kubewarden's policies", One: "policy", Many: "policies", Action: "Load",
		States: []string{running, loading, broken, refused},
	}
	for i := range s.Policies {
		p := &s.Policies[i]
		o := feature.Line{ID: p.ID, State: p.word(), Text: p.Text(), Object: p.Object}
		if p.Err != nil && !p.Loading {
			o.Reason = "PolicyNotRunning"
		}
		l.Lines = append(l.Lines, o)
	}
	return l
}

func (s *PolicyState) word() string {
	switch {
	case s.Err == nil:
		return running
	case s.Loading:
		return loading
	case s.Undecoded:
		return refused
	}
	return broken
}
