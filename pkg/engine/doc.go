// Package engine answers one question: what is the result of the policies for one request?
//
// An Engine runs each request through an ordered list of stages: the policies of a
// binding.Index, Gatekeeper's mutators as a Set, and other implementations of Runner. A stage
// gets the object that the stages before it left. Its Mode says whether its result is applied
// or only recorded.
//
// The policies' stage selects policies, evaluates match conditions and mutations in order,
// decides about a second round, and turns errors that failurePolicy Ignore does not hide into
// the status that the API server would have returned (spec §0, §4 and §9;
// k8s.io/apiserver/pkg/admission/plugin/policy/mutating/dispatcher.go).
//
// The result is a Decision with a Record of each stage. Metrics, audit annotations and
// explanations are all derived from its Steps.
//
// Three things differ from the server on purpose. The order is fixed: by policy name, binding
// name, parameter. Policies that match different versions of one object all work on the same
// current object, so no change is lost. And a panic in a policy is an error of that policy.
package engine
