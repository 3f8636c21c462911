package engine

import (
	"slices"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/tree"
)

// Decision is the answer to one request. It is not modified once returned.
type Decision struct {
	// Object is the object as it should be stored, in the version in which the
	// request held it; the request's own if nothing changed or the request was
	// denied; nil if the request has none.
	Object *unstructured.Unstructured
	// Changed says that Object's content differs from the request's.
	Changed bool
	// Status is nil if the request is allowed. Otherwise it is what the server
	// itself would answer the client (spec §9.5).
	Status *metav1.Status
	// Warnings are for the client. The server's own policies never warn, and no
	// step of ours does so far.
	Warnings []string
	// Steps are what happened, in order.
	Steps []Step
	// Rounds is 1, or 2 if a mutation of the first round completed and the
	// request was not denied (spec §9.3).
	Rounds int
	// Passes are those of the Set, up to the one that changed nothing or failed; 0
	// if there is no Set or already the first changed nothing.
	Passes int
	// Shadow is what a Set that only looks on would have decided on the Object
	// above; nil if there is none or nothing of it applies to the request.
	Shadow *Decision
}

// Outcome is how a step ended.
type Outcome int

const (
	// Skipped means that the step had nothing to do: Step.Reason says why.
	Skipped Outcome = iota
	// Unchanged means that a mutation completed and the object is the same.
	Unchanged
	// Changed means that a mutation completed and made a new object.
	Changed
	// Failed means an error: Step.Err. Step.Ignored says whether it counts.
	Failed
)

// String returns the outcome in lower case.
func (o Outcome) String() string {
	switch o {
	case Skipped:
		return "skipped"
	case Unchanged:
		return "unchanged"
	case Changed:
		return "changed"
	case Failed:
		return "failed"
	default:
		return "outcome " + strconv.Itoa(int(o))
	}
}

// Step is one line of the record: a mutation, or the reason why a policy or a
// binding did not come to its mutations. Policies that do not match the request
// leave no step, nor do those that a second round does not run again.
type Step struct {
	// Round is that of the policies, 1 or 2, and Pass that of the Set, from 1; one
	// of them is 0.
	Round, Pass int
	Policy      string
	// Binding is empty if the policy itself is at fault.
	Binding string
	// Param is the parameter's "namespace/name" or "name", or empty.
	Param string
	// Mutation is the index in spec.mutations, -1 for anything else.
	Mutation int
	// Type is empty if Mutation is -1.
	Type    admissionregistrationv1.PatchType
	Outcome Outcome
	// Reason says in a few words why a step was skipped.
	Reason string
	// Err is the cause of a failure, without naming policy and binding.
	Err error
	// Ignored says that the policy's failurePolicy swallowed Err.
	Ignored bool
	// Cost is in CEL units.
	Cost     int64
	Duration time.Duration
	// ConditionCost and ConditionTime are what the policy's match conditions took
	// if they held. They are told once, in the first step that came of it, and are
	// not part of Cost and Duration.
	ConditionCost int64
	ConditionTime time.Duration
	// Before and After are the object around a mutation, in the version that
	// the policy matched; the same pointer if the outcome is not Changed. They are
	// there only if the engine, or the Set, traces.
	Before, After *unstructured.Unstructured

	paths []string // as they were written
}

// Paths returns the JSON pointers of what the step changed, sorted. The list must
// not be modified.
func (s Step) Paths() []string {
	switch len(s.paths) {
	case 0:
	case 1:
		return s.paths
	default:
		paths := slices.Clone(s.paths)
		slices.Sort(paths)
		return slices.Compact(paths)
	}
	if s.Outcome != Changed || s.Before == s.After || s.Before == nil || s.After == nil {
		return nil
	}
	return tree.Changed(s.Before.Object, s.After.Object)
}
