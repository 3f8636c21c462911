// Package engine answers one question: what becomes of one request?
//
// An Engine runs each request through an ordered list of stages: the policies of a
// binding.Index, Gatekeeper's mutators as a Set, and whatever else implements
// Runner. A stage gets the object that the stages before it left. Its Mode says
// whether its result decides or is only recorded.
//
// The policies' stage selects, evaluates match conditions and mutations in order,
// decides about a second round, and turns the errors that failurePolicy does not
// swallow into the status that the API server would have answered (spec §0, §4 and
// §9; k8s.io/apiserver/pkg/admission/plugin/policy/mutating/dispatcher.go).
//
// The answer is a Decision with a Record of each stage. Steps are the one record of
// what happened: metrics, audit annotations and explanations are views of them.
//
// Three things differ from the server on purpose. The order is fixed: by policy
// name, binding name, parameter. Policies on several versions of one object all
// work on the same current object, so no change is lost. And a panic in a policy
// is that policy's error.
package engine
