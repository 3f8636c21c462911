// Package native answers one question: which policies stand for Gatekeeper's
// mutators in a cluster, and what has to be done that they do?
//
// Wanted are the policies that mutators come to, one Unit for each policy and its
// binding. Only what a policy does exactly is moved into one; all else stays in the
// engine. Places say of each mutator where it runs now: in mapd's set, or by a policy
// that is stored and known to the servers. Plan compares the units with what is
// stored and says what to write and to delete.
//
// A mutator is at no time in neither place. For a moment it may be in both, which
// changes nothing: what is exact leaves nothing to do for who comes second.
//
// Nothing here does I/O or knows a cluster's client.
package native
