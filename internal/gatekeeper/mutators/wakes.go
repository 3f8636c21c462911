package mutators

import "github.com/mapd-project/mapd/pkg/legacy"

// manyWakes is the number of candidates from which on a mutator wakes all others
// without a check. To check each pair of ten thousand mutators would take seconds.
const manyWakes = 256

// wakes returns, for each mutator, the indices of those that have to run again
// after it changed something, ascending. legacy.Affects decides; it is asked only
// about those whose locations get near enough.
func wakes(ms []*legacy.Mutator) [][]int {
	root := &branch{}
	var selecting []int // that ask for labels
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
	seen := make([]int, len(ms)) // by which mutator, from 1
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

// branch is a place to which locations lead, selectors of one list taken for the
// same place.
type branch struct {
	fields   map[string]*branch
	elements *branch
	// Mutators whose location ends here, leads here or beyond, or does so with a
	// path test here or on the way.
	ends, all, testing []int
	// byKey are those that lead here by a selector, by the selector's field.
	byKey map[string][]int
}

// step returns the branch to which a node leads, nil if there is none and it is
// not to be made.
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

// near passes to add those whose location is the same or a part, and of those
// that part with a's on the way the ones that may notice: by a path test, because
// a may add an element to a list or change the field that tells elements apart,
// or because they take for a list what a takes for an object. It stops when add
// is false.
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
			return add(t.all) // the rest of the way is among them
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
