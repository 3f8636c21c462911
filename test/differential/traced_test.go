package differential

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/cases"
	"github.com/mapd-project/mapd/test/hammer"
	"github.com/mapd-project/mapd/test/subject"
)

// An engine that keeps each version of an object, and so begins anew after each
// mutation, decides as one that writes to the same copy all the time; and what it
// kept is not modified afterwards: each step begins with what the one before left.
func TestTracedScenarios(t *testing.T) {
	hammer.Alone(t)
	last := hammer.Count(400)
	changes := 0
	for seed := 2; seed < last; seed += 3 { // the crowded ones
		c, err := cases.Parse("random", random(seed).txtar("§9: A random scenario."))
		if err != nil {
			t.Fatal(err)
		}
		given := []any{c.Request.Object.DeepCopy(), c.Request.OldObject.DeepCopy(), copies(c.Params), copies(c.Namespaces)}
		plain, err := subject.Run(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		e, err := subject.Traced(c)
		if err != nil {
			t.Fatal(err)
		}
		traced := e.Admit(t.Context(), subject.Request(&c.Request))

		if !agree(plain.Status, traced.Status) {
			t.Errorf("seed %d: status %v, traced %v", seed, plain.Status, traced.Status)
		}
		if diff := cmp.Diff(plain.Object, traced.Object); diff != "" {
			t.Errorf("seed %d (-plain +traced):\n%s", seed, diff)
		}
		if diff := cmp.Diff(given, []any{c.Request.Object, c.Request.OldObject, c.Params, c.Namespaces}); diff != "" {
			t.Errorf("seed %d: what was given is modified:\n%s", seed, diff)
		}
		if diff := cmp.Diff(untimed(plain.Steps), untimed(traced.Steps)); diff != "" {
			t.Errorf("seed %d: steps (-plain +traced):\n%s", seed, diff)
		}
		if s := c.Request.Kind; s.Version != "v2" { // in which there may be conversions between
			changes += follows(t, seed, c.Request.Object, traced.Steps)
		}
	}
	if changes < last/2 {
		t.Errorf("only %d changes", changes)
	}
}

func copies(all []*unstructured.Unstructured) (out []*unstructured.Unstructured) {
	for _, u := range all {
		out = append(out, u.DeepCopy())
	}
	return out
}

// follows walks the steps and counts those that changed the object.
func follows(t *testing.T, seed int, at *unstructured.Unstructured, steps []engine.Step) (changes int) {
	for i, s := range steps {
		if s.Before == nil {
			continue
		}
		if diff := cmp.Diff(at, s.Before); diff != "" {
			t.Errorf("seed %d: step %d begins with (-left by the one before +begun with):\n%s", seed, i, diff)
		}
		if at = s.After; s.Outcome != engine.Changed {
			continue
		}
		changes++
		if diff := cmp.Diff(tree.Changed(s.Before.Object, s.After.Object), s.Paths()); diff != "" {
			t.Errorf("seed %d: step %d changes (-seen +untimed):\n%s", seed, i, diff)
		}
	}
	return changes
}

// untimed returns the steps without what depends on time, tracing and the order of maps.
func untimed(steps []engine.Step) (out []any) {
	for _, s := range steps {
		out = append(out, []any{s.Round, s.Policy, s.Binding, s.Mutation, s.Outcome.String(), s.Paths(), s.Cost})
	}
	return out
}
