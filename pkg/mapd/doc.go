// Package mapd answers one question: what do these policies make of this
// object?
//
// It is for programs that have documents and want results, as
// the command `mapd eval` does. Load takes documents: policies, bindings,
// Gatekeeper's mutators, parameters, Namespaces, CustomResourceDefinitions and
// RBAC objects, mixed. Policies.Eval runs them on one object and returns a
// Result: the Decision of pkg/engine with its steps, the object with its
// comments kept, the fields that differ, and what to tell a person.
//
// An object is taken as people write it. Before the policies see it, it gets
// the defaults that an API server fills in; a Result shows only what policies
// changed. A Namespace that was not given has its name as its only label.
//
// Documents come as bytes with names. The package reads no files, starts
// nothing that outlives a call, and gives the same results for the same
// documents. Errors of documents are of type *Error, with file, line and
// column. Policies may be used from several goroutines.
//
// Programs that have requests and their own sources of policies, such as a
// webhook, use pkg/policy, pkg/binding and pkg/engine.
package mapd
