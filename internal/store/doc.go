// Package store answers one question: what does this cluster want now?
//
// It watches policies, bindings and Namespaces, the objects that policies take
// as parameters, and what the server says about its kinds. What changed is
// compiled, off the path of requests, and joined with the rest into one
// binding.Index for each webhook.Group; the Indexes of all groups are published
// together, each to an engine of its own. A request uses one Index from its
// start to its end; only parameters, Namespaces and the answers of the
// authorizer are looked up while it runs, as a server itself does.
// A policy that changes its group stays in the one it was in, too, until servers
// know where to find it: the webhook configuration is watched for that.
//
// An object that is stored and cannot be used stays in sight: such a policy
// fails the requests that it would have applied to by its failurePolicy, such a
// binding has no effect, and both are reported in the Snapshot.
//
// With Options for them, a Store also watches Gatekeeper's mutators, while the
// cluster has their kinds, and publishes them to an engine of their own. One
// that becomes invalid goes on as it was.
//
// A Store only reads. What mapd writes into a cluster is the business of
// internal/writer, which learns from Changed and Snapshot what there is to say.
package store
