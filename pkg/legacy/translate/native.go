package translate

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Options say how Native writes policies. The zero value inlines values, takes
// the patch type that reads best, writes for Kubernetes' own API group and knows
// the built-in kinds.
type Options struct {
	// Patch is "auto" (or empty), "json" or "apply".
	Patch string
	// Params leaves the values in the mutator and reads them from there.
	Params bool
	// Group is the API group of policies and bindings,
	// admissionregistration.k8s.io if empty.
	Group string
	// Types know the kinds; nil is the built-in ones.
	Types *openapi.Types
}

// Verdict says how true a native policy is to its mutator.
type Verdict string

// The verdicts. Only Exact and Differs come with a policy.
const (
	Exact      Verdict = "exact"
	Differs    Verdict = "differs"
	EngineOnly Verdict = "engine-only"
	Refused    Verdict = "refused"
)

// Note is one line about a verdict. Trap is the number of the behaviour in
// Gatekeeper spec §13, such as "T21", or empty.
type Note struct{ Trap, Text string }

// MutatorVerdict is what became of one mutator, by its ID.
type MutatorVerdict struct {
	ID      string
	Verdict Verdict
	Notes   []Note
}

// Unit is what one file holds: one mutator, or several whose order matters.
type Unit struct {
	Name     string
	Mutators []*legacy.Mutator
	// Policy and Binding are nil if nothing native does what the mutators do.
	Policy  *admissionregistrationv1.MutatingAdmissionPolicy
	Binding *admissionregistrationv1.MutatingAdmissionPolicyBinding
	// Comment says in plain words what the policy does, in lines of at most 100
	// characters without a comment sign.
	Comment string
	// Verdicts are those of Mutators, in the same order.
	Verdicts []MutatorVerdict
	// Rounds is how often the policy has to run for what its mutators say of one
	// another: 1, 2, or 3 for more than a server gives.
	Rounds int
}

// Native says in policies what mutators say. Units are sorted by name.
func Native(ms []*legacy.Mutator, o Options) []Unit {
	return nil
}
