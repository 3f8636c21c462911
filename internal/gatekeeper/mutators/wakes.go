package mutators

import "github.com/mapd-project/mapd/pkg/legacy"

// manyWakes is the number of candidates from which on a mutator wakes all others without a check:
// checking each pair of ten thousand mutators would take seconds.
const manyWakes = 256

// wakes returns, for each mutator, the indices of those that have to run again after it changed
// something, ascending. legacy.Affects decides. It is called only for pairs whose locations
// overlap.
func wakes(ms []*legacy.Mutator) [][]int {
	root := &branch{}
	var selecting []int // mutators with a label selector
	everybody := make([]int, len(ms))
	for i, m := range ms {
		root.insert(m, i)
		everybody[i] = i
		if m.Match.LabelSelector != nil || m.Match.NamespaceSelector != nil {
			selecting = append(selecting, i)
		}
	}
	out := make([][]int, len(ms))
	near := make([]int, 0, manyWakes)
	seen := make([]int, len(ms)) // seen[b] is 1 + the index of the mutator that last found b
	for i, a := range ms {
		near = near[:0]
		add := func(list []int) bool {
			for _, b := range list {
				if seen[b] != i+1 {
					seen[b] = i + 1
					near = append(near, b)
				}
			}
			return len(near) < manyWakes
		}
		few := !a.WritesKind() && root.near(a, add)
		if _, ok := a.Label(); ok && few {
			few = add(selecting)
		}
		if !few {
			out[i] = everybody
			continue
		}
		for _, b := range near {
			if legacy.Affects(a, ms[b]) {
				out[i] = append(out[i], b)
			}
		}
	}
	return out
}

// branch is a node of a tree of locations. Different selectors of one list lead to the same
// branch.
type branch struct {
	fields   map[string]*branch
	elements *branch
	// ends has the mutators whose location ends at this branch, all those whose location ends
	// here or below, and testing those of all that have a path test here or above.
	ends, all, testing []int
	// byKey has the mutators that come here through a list selector, by the selector's key field.
	byKey map[string][]int
}

// step returns the child branch for a node. If there is none, step creates it if create is set,
// and otherwise returns nil.
func (t *branch) step(n legacy.Node, create bool) *branch {
	next := t.elements
	if !n.List {
		next = t.fields[n.Name]
	}
	if next != nil || !create {
		return next
	}
	next = &branch{}
	switch {
	case n.List:
		t.elements = next
	case t.fields == nil:
		t.fields = map[string]*branch{n.Name: next}
	default:
		t.fields[n.Name] = next
	}
	return next
}

func (t *branch) insert(m *legacy.Mutator, i int) {
	tested := false
	for depth, n := range m.Location {
		t = t.step(n, true)
		t.all = append(t.all, i)
		if _, ok := m.Test(depth); ok || tested {
			tested = true
			t.testing = append(t.testing, i)
		}
		if n.List {
			if t.byKey == nil {
				t.byKey = map[string][]int{}
			}
			t.byKey[n.Name] = append(t.byKey[n.Name], i)
		}
	}
	t.ends = append(t.ends, i)
}

// near passes to add the mutators that may notice a change by a, and some that do not: those
// whose location is a prefix of a's or continues it; those with a path test on the part that they
// share with a's location; those that select elements of the same list, if a may add an element or
// change their key; and those that see a list where a sees an object, or the reverse. It stops
// when add returns false.
func (t *branch) near(a *legacy.Mutator, add func([]int) bool) bool {
	for depth, n := range a.Location {
		if n.List && len(t.fields) > 0 {
			return add(t.all)
		}
		if !n.List && t.elements != nil && !add(t.elements.all) {
			return false
		}
		if t = t.step(n, false); t == nil {
			return true
		}
		if depth == len(a.Location)-1 || n.List && (!n.Glob || len(t.byKey) > 1) {
			return add(t.all) // all includes the mutators further along the location
		}
		if !add(t.ends) || !add(t.testing) {
			return false
		}
		if n.List && !add(t.byKey[a.Location[depth+1].Name]) {
			return false
		}
	}
	return true
}
