package engine

import (
	"testing"

	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// The time of conditions that hold is reported once, with the first mutation.
func TestConditionsThatHoldAreTold(t *testing.T) {
	e := New(Options{})
	e.Publish(Policies(index(t, binding.Sources{Namespaces: namespaces{"t1"}},
		newPolicy(t, "p", []policy.Mutator{noop, noop}, condition("object.metadata.name != ''")),
		newPolicy(t, "q", run1(noop)))))
	d := e.Admit(t.Context(), request())
	if len(d.Steps) != 3 {
		t.Fatalf("steps = %q, want 3", record(d.Steps))
	}
	for i, s := range d.Steps {
		if told := i == 0; (s.ConditionCost > 0) != told || (s.ConditionTime > 0) != told {
			t.Errorf("step %d: conditions cost %d, took %v", i, s.ConditionCost, s.ConditionTime)
		}
	}
}

// A run that is used again knows nothing of the request before.
func TestRunsAreUsedAgain(t *testing.T) {
	e := New(Options{})
	e.Publish(Policies(index(t, binding.Sources{Namespaces: namespaces{"t1"}}, newPolicy(t, "p", run1(write("x")), ifNeeded))))
	first := e.Admit(t.Context(), request())
	kept := first.Object.DeepCopy()
	for range 10 {
		if d := e.Admit(t.Context(), request()); len(d.Steps) != len(first.Steps) || !d.Changed || d.Rounds(PolicyStage) != first.Rounds(PolicyStage) {
			t.Fatalf("Admit = %q, want %q", record(d.Steps), record(first.Steps))
		}
	}
	if !tree.Equal(first.Object.Object, kept.Object) {
		t.Errorf("the object of an earlier decision is %v, was %v", first.Object, kept)
	}
}
