package gatekeeper

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	"github.com/google/uuid"
	mutations "github.com/open-policy-agent/gatekeeper/v3/apis/mutations/unversioned"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// What mapd does otherwise on purpose, as rows of docs/reference/compat.md. Positions names
// those that Gatekeeper can be made to do here as well.
const (
	rowShared  = "gk-shared-values"
	rowPrune   = "gk-prune-creates"
	rowRefused = "gk-refused-early"
	rowNumbers = "gk-nested-numbers"
	rowLabels  = "gk-external-labels"
)

// member is a mutator of a system.
type member struct {
	mutationtypes.Mutator
	// careful is the same, but for a prune: that stops where nothing is.
	careful mutationtypes.Mutator
}

func newMember(u *unstructured.Unstructured, m mutationtypes.Mutator) member {
	out := member{Mutator: m, careful: m}
	if operation, _, _ := unstructured.NestedString(u.Object, "spec", "parameters", "operation"); u.GetKind() != "ModifySet" || operation != "prune" {
		return out
	}
	var err error
	if out.careful, err = decode(careful(u)); err != nil {
		panic(fmt.Sprintf("%v: with a test for the list: %v", m.ID(), err))
	}
	return out
}

// careful gives a prune a test that its whole location exists. The test comes
// first, where it does not change whether the others are accepted (Gatekeeper
// spec §3.6). One that is there already and asks for something else lets the
// mutator do nothing, which it still does.
func careful(u *unstructured.Unstructured) *unstructured.Unstructured {
	u = u.DeepCopy()
	parameters := u.Object["spec"].(map[string]any)["parameters"].(map[string]any)
	tests, _ := parameters["pathTests"].([]any)
	location := text(u.Object["spec"].(map[string]any), "location")
	condition := "MustExist"
	var others []any
	for _, t := range tests {
		test := t.(map[string]any)
		if text(test, "subPath") != location {
			others = append(others, test)
		} else if text(test, "condition") != "MustExist" {
			condition = "Never"
		}
	}
	parameters["pathTests"] = append([]any{map[string]any{"subPath": location, "condition": condition}}, others...)
	return u
}

// off says whether a mutator does not run because of a conflict. Gatekeeper
// knows conflicts too of those that merely end where others are in conflict, and
// which do run (Gatekeeper spec §8.4).
func (g *Gatekeeper) off(id mutationtypes.ID) bool { return g.system.GetConflicts(id)[id] }

// positions are what mapd does otherwise.
type positions struct {
	// careful prunes create nothing. unlike are the values of different places: no two
	// of them are one. readable are labels beside one that waits for external data.
	careful, unlike, readable bool
}

// MutateAs is Mutate as mapd does it. It also returns the rows that made a
// difference.
func (g *Gatekeeper) MutateAs(ctx context.Context, r Request) (Result, []string, error) {
	all, err := mutate(r, func(m *mutationtypes.Mutable) (int, error) { return g.run(ctx, m, positions{true, true, true}) })
	if err != nil {
		return all, nil, err
	}
	var rows []string
	for _, p := range []struct {
		row  string
		does positions
	}{{rowPrune, positions{false, true, true}}, {rowShared, positions{true, false, true}}, {rowLabels, positions{true, true, false}}} {
		without, err := mutate(r, func(m *mutationtypes.Mutable) (int, error) { return g.run(ctx, m, p.does) })
		if err != nil {
			return all, nil, err
		}
		if !reflect.DeepEqual(without, all) {
			rows = append(rows, p.row)
		}
	}
	return all, rows, nil
}

// run is Gatekeeper's System.Mutate (Gatekeeper spec §8.2) with some positions.
func (g *Gatekeeper) run(ctx context.Context, mutable *mutationtypes.Mutable, does positions) (int, error) {
	obj := mutable.Object
	given := runtime.DeepCopyJSON(obj.Object)
	what := func() string {
		gvk := obj.GroupVersionKind()
		name := obj.GetName()
		if name == "" {
			name = obj.GetGenerateName()
		}
		return fmt.Sprintf("%s %s %s %s", gvk.Group, gvk.Kind, obj.GetNamespace(), name)
	}
	for pass := 1; pass <= len(g.members)+1; pass++ {
		before := mutations.DeepCopyWithPlaceholders(obj).Object
		for _, m := range g.members {
			if g.off(m.ID()) {
				continue
			}
			seen := *mutable
			if does.readable {
				seen.Object = readable(obj)
			}
			matches, err := m.Matches(&seen)
			if err != nil {
				return pass, fmt.Errorf("matching for mutator %v failed for %s: %w", m.ID(), what(), err)
			}
			if !matches {
				continue
			}
			next := m.Mutator
			if does.careful {
				next = m.careful
			}
			if _, err := next.Mutate(mutable); err != nil {
				return pass, fmt.Errorf("mutation <uuid> for mutator %v failed for %s: %w", m.ID(), what(), err)
			}
			if does.unlike {
				obj.Object = mutations.DeepCopyWithPlaceholders(obj).Object
			}
		}
		if reflect.DeepEqual(before, obj.Object) {
			if pass == 1 {
				return 0, nil
			}
			return pass, g.resolve(ctx, mutable, given)
		}
	}
	return len(g.members) + 1, fmt.Errorf("mutation not converging: mutation <uuid> not converging for %s", what())
}

// readable is an object as mapd's selectors see it: without labels that wait for
// external data, instead of without any.
func readable(obj *unstructured.Unstructured) *unstructured.Unstructured {
	labels, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "metadata", "labels")
	set, _ := labels.(map[string]any)
	waits := func(_ string, v any) bool { _, is := v.(*mutations.ExternalDataPlaceholder); return is }
	known := maps.Clone(set)
	if maps.DeleteFunc(known, waits); len(known) == len(set) {
		return obj
	}
	out := mutations.DeepCopyWithPlaceholders(obj)
	out.Object["metadata"].(map[string]any)["labels"] = known
	return out
}

// resolve has Gatekeeper's system ask for the placeholders of the object: it takes the
// object for what the one mutator of a system makes of the object that was given.
func (g *Gatekeeper) resolve(ctx context.Context, mutable *mutationtypes.Mutable, given map[string]any) error {
	if reflect.DeepEqual(given, mutable.Object.Object) {
		return nil
	}
	after := mutable.Object.Object
	mutable.Object.Object = given
	system := mutation.NewSystem(g.providers.options(mutation.SystemOpts{NewUUID: func() uuid.UUID { return uuid.Nil }}))
	if err := system.Upsert(&replaces{Mutator: g.members[0].Mutator, object: after}); err != nil {
		return err
	}
	_, err := system.Mutate(ctx, mutable)
	return err
}

// replaces is a mutator that replaces the object.
type replaces struct {
	mutationtypes.Mutator // whose ID it has
	object                map[string]any
}

func (r *replaces) Matches(*mutationtypes.Mutable) (bool, error) { return true, nil }
func (r *replaces) HasDiff(mutationtypes.Mutator) bool           { return true }
func (r *replaces) DeepCopy() mutationtypes.Mutator              { return r }
func (r *replaces) Mutate(m *mutationtypes.Mutable) (bool, error) {
	m.Object.Object = r.object
	return true, nil
}
