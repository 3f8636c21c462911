// Package nativepolicies answers one question: which policies stand for Gatekeeper's
// mutators in a cluster, and what has to be written so that they do?
//
// Want returns the wanted policies, one Unit for each policy and its binding.
// Only mutators that a policy does exactly get one; the engine runs all others.
// Places say for each mutator where it runs now: in mapd's set, or by a policy
// that is stored and known to the API servers. Plan compares the units with the
// stored objects and says what to write and to delete.
//
// At every moment a mutator is in at least one place. For a short time it may
// be in both, which does no harm: after an exact policy, the mutator finds
// nothing left to do.
//
// The package does no I/O and knows no client of a cluster.
package nativepolicies
