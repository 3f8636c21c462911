// Package nativepolicies answers one question: which MutatingAdmissionPolicies replace
// Gatekeeper's mutators in a cluster, and which objects have to be written or deleted for that?
//
// Want returns the wanted policies, one Unit for each policy and its binding. A mutator gets a
// policy only if the policy has exactly the same effect; the engine runs all others. Places say
// for each mutator where it runs now: in mapd's set of mutators, or in a stored policy that API
// servers know. Plan compares the units with the stored objects and returns what to write and
// what to delete.
//
// At every moment a mutator runs in at least one place. For a short time it may run in both,
// which does no harm: after an exact policy, the mutator finds nothing left to change.
//
// The package does no I/O and has no client of a cluster. Start reading at Want and Plan.
package nativepolicies
