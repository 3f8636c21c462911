// Package validating answers one question: what would an API server's validation say about this
// object, after mutation?
//
// A Set has ValidatingAdmissionPolicies with their bindings, and the levels of Pod Security that
// Namespaces ask for. Judge returns a Violation for everything that a server would refuse, warn
// of or write to its audit log. It does not decide about the request: an object that expansion
// made was never sent to a server, and its template says what a Violation means for the workload.
//
// Expressions are compiled and evaluated by the API server's own code
// (k8s.io/apiserver/pkg/admission/plugin/policy/validating), within its budgets, and Pods are
// checked by k8s.io/pod-security-admission. pkg/binding finds the policies that apply to an
// object, and their parameters, because the rules for that are the same as for mutating policies.
// Start reading at Judge.
package validating
