// Package mapd answers one question: how do these policies change this object?
//
// It is for programs that evaluate policies on documents, as
// the command `mapd eval` does. Load takes documents: policies, bindings,
// Gatekeeper's mutators, parameters, Namespaces, CustomResourceDefinitions and
// RBAC objects, mixed. Policies.Eval runs them on one object and returns a
// Result: the Decision of pkg/engine with its steps, the object with its
// comments kept, the fields that differ, and texts for people.
//
// An object may have the form in which people write it. Before the policies
// run, it gets the defaults that an API server fills in; a Result shows only what
// policies changed. A Namespace that was not given has its name as its only label.
//
// Documents come as bytes with names. The package reads no files, starts
// nothing that outlives a call, and gives the same results for the same
// documents. Errors of documents are of type *Error, with file, line and
// column. Policies may be used from several goroutines.
//
// Programs that have requests and their own sources of policies, such as a
// webhook, use pkg/policy, pkg/binding and pkg/engine.
package mapd
