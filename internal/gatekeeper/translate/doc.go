// Package translate answers one question: which MutatingAdmissionPolicies have the effect of
// these Gatekeeper mutators?
//
// Native writes policies for people to maintain, with a verdict for each mutator: whether the
// policy has exactly its effect and, if not, in which cases it differs. Runtime writes the policy
// with which the engine runs a mutator. Mutators of one shape (ShapeOf) share such a policy and
// are its parameters. A mutator that no policy can express is refused with the reason.
//
// The package does not run anything: internal/gatekeeper/mutators does. Start reading at Native;
// walk.go translates a location.
package translate
