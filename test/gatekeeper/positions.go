package gatekeeper

import (
	"fmt"
	"reflect"

	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// What mapd does otherwise on purpose, as rows of docs/compat.md. Positions names
// those that Gatekeeper can be made to do here as well.
const (
	rowShared  = "gk-shared-values"
	rowPrune   = "gk-prune-creates"
	rowRefused = "gk-refused-early"
	rowNumbers = "gk-nested-numbers"
	rowExtern  = "gk-external-data"
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

// MutateAs is Mutate as mapd does it: a prune creates nothing, and no two places
// of the object share a value. It also returns the rows that made a difference.
func (g *Gatekeeper) MutateAs(r Request) (Result, []string, error) {
	both, err := mutate(r, func(m *mutationtypes.Mutable) (int, error) { return g.run(m, true, true) })
	if err != nil {
		return both, nil, err
	}
	var rows []string
	for _, p := range []struct {
		row             string
		careful, unlike bool
	}{{rowPrune, false, true}, {rowShared, true, false}} {
		without, err := mutate(r, func(m *mutationtypes.Mutable) (int, error) { return g.run(m, p.careful, p.unlike) })
		if err != nil {
			return both, nil, err
		}
		if !reflect.DeepEqual(without, both) {
			rows = append(rows, p.row)
		}
	}
	return both, rows, nil
}

// run is Gatekeeper's System.Mutate (Gatekeeper spec §8.2), with careful prunes,
// and without values that are in several places.
func (g *Gatekeeper) run(mutable *mutationtypes.Mutable, careful, unlike bool) (int, error) {
	obj := mutable.Object
	what := func() string {
		gvk := obj.GroupVersionKind()
		name := obj.GetName()
		if name == "" {
			name = obj.GetGenerateName()
		}
		return fmt.Sprintf("%s %s %s %s", gvk.Group, gvk.Kind, obj.GetNamespace(), name)
	}
	for pass := 1; pass <= len(g.members)+1; pass++ {
		before := runtime.DeepCopyJSON(obj.Object)
		for _, m := range g.members {
			if g.off(m.ID()) {
				continue
			}
			matches, err := m.Matches(mutable)
			if err != nil {
				return pass, fmt.Errorf("matching for mutator %v failed for %s: %w", m.ID(), what(), err)
			}
			if !matches {
				continue
			}
			next := m.Mutator
			if careful {
				next = m.careful
			}
			if _, err := next.Mutate(mutable); err != nil {
				return pass, fmt.Errorf("mutation <uuid> for mutator %v failed for %s: %w", m.ID(), what(), err)
			}
			if unlike {
				obj.Object = runtime.DeepCopyJSON(obj.Object)
			}
		}
		if reflect.DeepEqual(before, obj.Object) {
			if pass == 1 {
				return 0, nil
			}
			return pass, nil
		}
	}
	return len(g.members) + 1, fmt.Errorf("mutation not converging: mutation <uuid> not converging for %s", what())
}
