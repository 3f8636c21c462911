// Package store answers one question: which policies and bindings are in force in this cluster
// now?
//
// It watches policies, bindings and Namespaces, the objects that policies take as parameters, and
// the kinds that the server serves. It compiles what has changed, outside of requests, and
// combines it with the rest into one binding.Index for each webhook entry. The Indexes of all
// entries are published together, each to its own engine. A request uses one Index from its start
// to its end; only parameters, Namespaces and the authorizer's answers are looked up during the
// request, as in an API server. A policy that moves to another entry stays in its old entry, too,
// until API servers know the new one; the Store watches the webhook configuration for that.
//
// Stored objects that cannot be used stay in the Index: for requests that such a policy would
// match, its failurePolicy decides; such a binding has no effect. The Snapshot reports both.
//
// A Store also runs the features in Options.Features (internal/cluster/feature): Gatekeeper's
// mutators, Kubewarden's policies and whatever else mapd runs besides policies. It knows none of
// them by name.
//
// A Store only reads. internal/cluster/controllers writes into the cluster; Changed and Snapshot
// tell it when and what. Start reading at Store.Run.
package store
