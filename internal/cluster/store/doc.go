// Package store answers one question: which policies and bindings does this
// cluster want to be in force now?
//
// It watches policies, bindings and Namespaces, the objects that policies take as
// parameters, and the kinds that the server serves. It compiles what has changed, off
// the path of requests, and joins it with the rest into one binding.Index for each
// webhook entry. The Indexes of all entries are published together, each to an engine of
// its own. A request uses one Index from its start to its end; only parameters,
// Namespaces and the authorizer's answers are looked up while it runs, as in a server.
// A policy that moves to another entry also stays in the one that it leaves until API
// servers know the new one: the Store watches the webhook configuration for that.
//
// An object that is stored and cannot be used stays in the Index: such a policy fails
// the requests that it would have applied to by its failurePolicy, such a binding has no
// effect, and the Snapshot reports both.
//
// A Store also runs the features that Options.Features lists (internal/cluster/feature):
// Gatekeeper's mutators, Kubewarden's policies and whatever else mapd runs beside policies.
// It knows none of them by name.
//
// A Store only reads. internal/cluster/controllers writes into the cluster; Changed and Snapshot say
// when and what.
package store
