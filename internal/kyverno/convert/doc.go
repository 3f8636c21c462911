// Package convert answers one question: which MutatingAdmissionPolicies do what a policy of
// Kyverno does, and how exactly?
//
// Policy converts the mutate rules of one policy. Each rule gets a verdict; a rule whose
// effect no policy has is refused with a reason, because a wrong policy is worse than none.
// What Kyverno does is what its engine was seen to do at 1.19.1, which is not always what its
// documentation says: test/kyverno holds the policies against that engine.
//
// Start with Policy; overlay.go understands patchStrategicMerge, jmespath.go variables.
package convert
