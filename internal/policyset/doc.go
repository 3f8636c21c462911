// Package policyset answers one question: how do documents become policies that an engine can
// run?
//
// Build sorts documents into policies, bindings, CustomResourceDefinitions, Gatekeeper's
// mutators, Namespaces, RBAC and parameters, decodes, validates and compiles them as a server
// would, and joins them into a Snapshot. It reports all errors at once, each with its place in a
// file. A Snapshot is immutable, except that it records some facts about its use.
//
// Reading files is not its task: internal/document/manifest does that. Start reading at Build.
package policyset
