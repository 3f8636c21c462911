// Package convert answers one question: which MutatingAdmissionPolicies have the effect of a
// policy of Kyverno, and how exactly?
//
// Policy converts the mutate rules of one policy. Each rule gets a verdict. A rule that no
// MutatingAdmissionPolicy can express is refused with a reason, because a wrong policy is worse
// than none. The reference is the behaviour of Kyverno's engine at 1.19.1, which is not always
// what its documentation says: test/kyverno compares the policies with that engine.
//
// Start with Policy. overlay.go converts patchStrategicMerge, jsonpatch.go patchesJson6902 and
// foreach, jmespath.go variables.
package convert
