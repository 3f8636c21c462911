// Package validating answers one question: what would a server's validation say of
// this object, after mutation?
//
// A Set holds ValidatingAdmissionPolicies with their bindings, and the levels of Pod
// Security that Namespaces ask for. Judge returns a Violation for everything that a
// server would refuse, warn of or write to its audit log. It decides nothing about
// the request: an object that expansion made was never sent to a server, and its
// template says what a Violation means for the workload.
//
// Expressions are compiled and evaluated by the API server's own code
// (k8s.io/apiserver/pkg/admission/plugin/policy/validating), within its budgets, and
// Pods are judged by k8s.io/pod-security-admission. Which policies apply to an
// object, with which parameters, is what pkg/binding finds for mutating policies: the
// two kinds of policies have their rules in common.
package validating
