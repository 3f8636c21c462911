// Package policyset answers one question: how do these documents become
// policies that run?
//
// Build sorts documents into policies, bindings, CustomResourceDefinitions,
// Gatekeeper's mutators, Namespaces, RBAC and parameters, decodes, validates and
// compiles them as a server would, and joins them into a Snapshot that an engine
// can run. All that is wrong is reported at once, each fault with its place in a
// file. A Snapshot is immutable but for what it notes about its own use.
package policyset
