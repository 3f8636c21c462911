// Package engine answers one question: what do all policies together make of one
// request?
//
// An Engine holds the current binding.Index and runs requests through it: it
// selects, evaluates match conditions and mutations in order, decides about a
// second round, and turns the errors that failurePolicy does not swallow into
// the status that the API server would have answered (spec §0, §4 and §9;
// k8s.io/apiserver/pkg/admission/plugin/policy/mutating/dispatcher.go). The
// answer is a Decision, whose Steps are the one record of what happened:
// metrics, audit annotations and explanations are views of it.
//
// Three things differ from the server on purpose. The order is fixed: by policy
// name, binding name, parameter. Policies on several versions of one object all
// work on the same current object, so no change is lost. And a panic in a policy
// is that policy's error.
package engine
