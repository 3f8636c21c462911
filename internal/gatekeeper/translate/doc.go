// Package translate answers one question: which MutatingAdmissionPolicies do what
// these Gatekeeper mutators do?
//
// Native writes policies for people to maintain, with a verdict for each mutator:
// whether the policy does exactly the same, and if not, in which cases it
// differs. Runtime makes the policy by which the engine runs a mutator; mutators of
// one shape (ShapeOf) share it and are its parameters. What cannot be said in a
// policy is refused with the reason.
package translate
