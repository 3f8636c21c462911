// Package gatekeeper runs Gatekeeper's mutators that are stored in a cluster, in Gatekeeper's
// place. On request, it also moves them into MutatingAdmissionPolicies. It is a feature of `mapd
// serve` (internal/cluster/feature).
//
// What a mutator does is decided in internal/gatekeeper/mutators, and which policies replace
// mutators in internal/gatekeeper/nativepolicies. Start reading at Feature.Update.
package gatekeeper
