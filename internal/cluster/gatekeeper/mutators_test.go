package gatekeeper

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/feature/featuretest"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// testMutator is an AssignMetadata; a location that is not one makes it invalid.
func testMutator(t testing.TB, name, location string, uid string, generation int64) *unstructured.Unstructured {
	t.Helper()
	u := featuretest.Parse(t, fmt.Sprintf(`
apiVersion: mutations.gatekeeper.sh/v1
kind: AssignMetadata
metadata: {name: %s}
spec: {location: %q, parameters: {assign: {value: x}}}
`, name, location))
	u.SetUID(types.UID(uid))
	u.SetGeneration(generation)
	return u
}

const validLocation = "metadata.labels.a"

func TestKeepMutator(t *testing.T) {
	first := mutatorDecoder.Keep(testMutator(t, "a", validLocation, "1", 1), nil)
	if first.Err != nil || first.Value == nil {
		t.Fatalf("a valid mutator: %v", first.Err)
	}
	if again := mutatorDecoder.Keep(testMutator(t, "a", validLocation, "1", 1), first); again != first {
		t.Error("the same generation is another mutator")
	}
	broken := mutatorDecoder.Keep(testMutator(t, "a", "spec.x", "1", 2), first)
	if broken.Err == nil || broken.Value != first.Value {
		t.Errorf("an invalid update: error %v, mutator %p, want that of before %p", broken.Err, broken.Value, first.Value)
	}
	still := mutatorDecoder.Keep(testMutator(t, "a", "spec.y", "1", 3), broken)
	if still.Err == nil || still.Value != first.Value {
		t.Errorf("another invalid update: error %v, mutator %p, want the last valid one %p", still.Err, still.Value, first.Value)
	}
	other := mutatorDecoder.Keep(testMutator(t, "a", "spec.x", "2", 1), still)
	if other.Err == nil || other.Value != nil {
		t.Errorf("another object of the name: error %v, mutator %p, want none", other.Err, other.Value)
	}
	mended := mutatorDecoder.Keep(testMutator(t, "a", "metadata.labels.b", "1", 4), still)
	if mended.Err != nil || mended.Value == nil || mended.Value == first.Value {
		t.Errorf("a valid update: error %v", mended.Err)
	}
}

func testConfig(t testing.TB, namespace string, generation int64, match string) *unstructured.Unstructured {
	t.Helper()
	u := featuretest.Parse(t, fmt.Sprintf("{apiVersion: config.gatekeeper.sh/v1alpha1, kind: Config, metadata: {name: config, namespace: %s}, spec: {match: %s}}", namespace, match))
	u.SetUID("1")
	u.SetGeneration(generation)
	return u
}

// newTestFeature is one whose kinds are served, and that nobody runs.
func newTestFeature(t testing.TB, metrics Metrics) *Feature {
	t.Helper()
	g := New(Options{Metrics: metrics})
	g.Start(featuretest.Deps(t))
	for _, k := range g.kinds {
		k.SetServed(true)
	}
	g.configs.SetServed(true)
	return g
}

// counted keeps what metrics count.
type counted struct{ mutators map[string]int }

func (c *counted) MutatorsPublished(states map[string]int, _ int) { c.mutators = states }

func TestChosenConfig(t *testing.T) {
	g := newTestFeature(t, nil)
	chosen := func() string {
		if c := g.chosenConfig(); c != nil {
			return c.Object.GetNamespace()
		}
		return ""
	}
	for _, tt := range []struct {
		namespaces []string
		want       string
	}{
		{nil, ""},
		{[]string{"z", "b"}, "b"},
		{[]string{"z", "gatekeeper-system", "b"}, "gatekeeper-system"},
	} {
		var objects []*unstructured.Unstructured
		for _, ns := range tt.namespaces {
			objects = append(objects, testConfig(t, ns, 1, "[]"))
		}
		featuretest.Put(t, g.configs, objects...)
		if got := chosen(); got != tt.want {
			t.Errorf("of Configs in %v: %q, want %q", tt.namespaces, got, tt.want)
		}
	}
}

// states are mutators in few words.
func states(s *State) []string {
	out := []string{}
	for i := range s.Mutators {
		m := &s.Mutators[i]
		word := "off"
		if m.Running {
			word = "running"
		}
		if m.Err != nil {
			word += ", invalid"
		}
		out = append(out, m.ID()+": "+word)
	}
	return out
}

func TestUpdate(t *testing.T) {
	metrics := &counted{}
	g := newTestFeature(t, metrics)
	if g.Update(t.Context(), false) || g.engine.Stages() != nil || g.Ready() == nil {
		t.Fatal("there is a set before anything has been read")
	}
	var metadata *watch.Mirror[*storedMutator]
	for i, k := range g.kinds {
		if legacy.Kinds()[i] == legacy.AssignMetadata {
			metadata = k
			featuretest.Put(t, k, testMutator(t, "b", validLocation, "b", 1), testMutator(t, "a", "spec.x", "a", 1))
		} else {
			featuretest.Put(t, k)
		}
	}
	if g.Update(t.Context(), false) || g.Ready() == nil {
		t.Fatal("there is a set before the Config has been read")
	}
	featuretest.Put(t, g.configs)
	if !g.Update(t.Context(), false) || g.engine.Stages() == nil || g.Ready() != nil {
		t.Fatalf("there is no set: %v", g.Ready())
	}
	want := []string{"AssignMetadata/a: off, invalid", "AssignMetadata/b: running"}
	if diff := cmp.Diff(want, states(g.state)); diff != "" {
		t.Errorf("states (- want):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"running": 1, "conflict": 0, "not-run": 1}, metrics.mutators); diff != "" {
		t.Errorf("counted (- want):\n%s", diff)
	}
	if !g.Holds("AssignMetadata/a") || g.Holds("Assign/a") || g.Holds("AssignMetadata/c") || g.Holds("a") {
		t.Error("holds")
	}

	set := func() engine.Runner { return g.engine.Stages()[0].Runner }
	before := set()
	if featuretest.Put(t, metadata, testMutator(t, "b", validLocation, "b", 1), testMutator(t, "a", "spec.x", "a", 1)); g.Update(t.Context(), false) {
		t.Error("the same again is news")
	}
	if set() != before {
		t.Error("the same again is another set")
	}
	if !g.Update(t.Context(), true) || set() == before {
		t.Error("other kinds make no other set")
	}
	featuretest.Put(t, metadata, testMutator(t, "b", "spec.x", "b", 2))
	if !g.Update(t.Context(), false) {
		t.Error("an invalid update is no news")
	}
	if diff := cmp.Diff([]string{"AssignMetadata/b: running, invalid"}, states(g.state)); diff != "" {
		t.Errorf("states (- want):\n%s", diff)
	}
	metadata.SetServed(false)
	if !g.Update(t.Context(), false) || len(g.state.Mutators) != 0 {
		t.Errorf("of a kind that is gone there is %v", states(g.state))
	}

	before = set()
	metadata.SetServed(true)
	metadata.Note(apierrors.NewForbidden(schema.GroupResource{Resource: "assignmetadata"}, "", errors.New("no")))
	if !g.Update(t.Context(), false) || len(g.state.Problems) != 1 || set() != before {
		t.Errorf("problems %q", g.state.Problems)
	}
}
