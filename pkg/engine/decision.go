package engine

import (
	"maps"
	"slices"
	"strconv"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Decision is the result of one request. It is immutable once returned.
type Decision struct {
	// Object is the object as it should be stored, in the version in which the
	// request held it; the request's own if nothing changed or the request was
	// denied; nil if the request has none.
	Object *unstructured.Unstructured
	// Changed says that Object's content differs from the request's.
	Changed bool
	// Status is nil if the request is allowed. Otherwise it is the status that the server
	// itself would return to the client (spec §9.5).
	Status *metav1.Status
	// Warnings are for the client. Of all policies only Kubewarden's warn.
	Warnings []string
	// Steps are those of all enforced stages, in order.
	Steps []Step
	// Stages has a Record for each stage that had a policy for the request, in order; none
	// comes after one that refused it.
	Stages []Record
	// LeftOut are the policies that did not run because a binding's share does not include the
	// object, or because of an exception. A policy that both rounds left out occurs twice.
	LeftOut []binding.LeftOut
}

// Record is the result of one stage for a request. If the stage is not enforced, it is what
// would have been decided.
type Record struct {
	Stage *Stage
	// Object is the object after the stage, or as it was before if the stage did not
	// change it or refuses the request.
	Object  *unstructured.Unstructured
	Changed bool
	Status  *metav1.Status
	Steps   []Step
	Rounds  int
	// Asked has an entry for each source that the stage asked, in the order of the first
	// question to it; nil if it asked none.
	Asked []Asked
	// Shadows are the results of policies of the stage that are not enforced, in order.
	Shadows []Shadow

	content unstructured.Unstructured // backing of Object, if the stage changed it
}

// Stage returns the Record of a stage, nil if Stages has none.
func (d *Decision) Stage(name string) *Record {
	for i := range d.Stages {
		if d.Stages[i].Stage.Name == name {
			return &d.Stages[i]
		}
	}
	return nil
}

// Rounds returns how many times a stage ran through its members, see Result; 0 without a
// Record.
func (d *Decision) Rounds(stage string) int {
	if r := d.Stage(stage); r != nil {
		return r.Rounds
	}
	return 0
}

// Annotations returns the audit annotations that policies added, with keys that contain the
// policy's name, or nil. Only Kubewarden's policies add any.
func (d *Decision) Annotations() map[string]string {
	var all map[string]string
	for i := range d.Steps {
		if said := d.Steps[i].Remarks; said != nil && len(said.Annotations) > 0 {
			if all == nil {
				all = make(map[string]string, len(said.Annotations))
			}
			maps.Copy(all, said.Annotations)
		}
	}
	return all
}

// Outcome is how a step ended.
type Outcome uint8

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

// Step records one mutation, or the reason why the mutations of a policy or a binding did not
// run. Policies that do not match the request leave no step, nor do policies that a second
// round does not run again.
type Step struct {
	// Stage is the name of the stage, and Round the number of its run through its
	// members, from 1.
	Stage string
	Round int
	// Policy is the name of the policy or, in other stages, of the stage's member.
	Policy string
	// Binding is empty if the step is about the policy itself.
	Binding string
	// Param is the parameter's "namespace/name" or "name", or empty.
	Param string
	// Mutation is the index in spec.mutations, -1 if the step is not about a mutation.
	Mutation int
	// Type is empty if Mutation is -1, or if the member has no patch types, like a mutator.
	Type    admissionregistrationv1.PatchType
	Outcome Outcome
	// Ignored says that failurePolicy Ignore hid Err.
	Ignored bool
	// Reason says in a few words why a step was skipped.
	Reason string
	// Err is the cause of a failure, without the names of policy and binding.
	Err error
	// Cost is the CEL cost of the step.
	Cost     int64
	Duration time.Duration
	// ConditionCost and ConditionTime are the cost and the duration of the policy's match
	// conditions, if they held. Only the first step after them has both; Cost and Duration do
	// not include them.
	ConditionCost int64
	ConditionTime time.Duration
	// Before and After are the object before and after a mutation, in the version that the
	// policy matched; they are the same pointer unless the outcome is Changed. They are nil
	// without Options.Trace.
	Before, After *unstructured.Unstructured
	// Trace is what the step evaluated, and ConditionTrace what the match conditions before it
	// did. A step that was skipped because a condition was false has a ConditionTrace too. They
	// are nil unless the policies were compiled with cel.Options.Observe.
	Trace, ConditionTrace *policy.Trace
	// Remarks are the warnings and annotations of the policy, nil if there are none.
	Remarks *policy.Remarks

	paths []string // in the order in which they were written
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
