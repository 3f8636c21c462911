// Package breaker answers one question: does a policy fail, or take so long, that it
// should no longer be enforced?
//
// A policy has a Breaker if its author asked for one with the annotation mapd.dev/breaker.
// The Breaker counts the evaluations of one replica in a window of time, in constant
// memory, and trips when too many of them were bad. The Trip is stored in the policy's
// status, with a digest of what was tripped: a Trip with another digest is void, so that
// an edit of the policy resets its Breaker on every replica.
//
// This package neither reads a cluster nor writes to it: internal/cluster/store has the Breakers
// of the policies that run, and internal/cluster/controllers stores Trips.
package breaker
