package legacy

import "slices"

// Component is a set of mutators that have to run together, in their order.
type Component struct {
	Members []*Mutator // in Gatekeeper's order
	// Rounds is how many passes over the members give the same result as all of
	// Gatekeeper's passes, whatever the object: 1, 2, or 3 for more.
	Rounds int
	Why    string // what makes a second round necessary, "" if nothing does
}

// Components partitions mutators into the smallest sets whose order does not change the result.
// The sets are sorted by their first members. ms must be the mutators that run: Components does
// not check for conflicts.
func Components(ms []*Mutator) []Component {
	ms = slices.SortedFunc(slices.Values(ms), Compare)
	set := newUnion(len(ms))
	for i, a := range ms {
		for j := i + 1; j < len(ms); j++ {
			if set.find(i) != set.find(j) && !Commute(a, ms[j]) {
				set.join(i, j)
			}
		}
	}
	members := map[int][]*Mutator{}
	for i, m := range ms {
		root := set.find(i)
		members[root] = append(members[root], m)
	}
	var all []Component
	for i := range ms {
		// The smallest index is the root.
		if c := members[i]; c != nil {
			rounds, why := rounds(c)
			all = append(all, Component{c, rounds, why})
		}
	}
	return all
}

// union is a set of disjoint sets of indices.
type union []int

func newUnion(n int) union {
	u := make(union, n)
	for i := range u {
		u[i] = i
	}
	return u
}

func (u union) find(i int) int {
	for u[i] != i {
		u[i] = u[u[i]]
		i = u[i]
	}
	return i
}

func (u union) join(i, j int) {
	i, j = u.find(i), u.find(j)
	u[max(i, j)] = min(i, j)
}

// manyRounds stands for 3 or more rounds.
const manyRounds = 3

// rounds returns the number of the last pass in which a mutator can make a lasting change. A
// change by an earlier mutator reaches a later one in the same pass. A change by a later one
// reaches an earlier one in the next pass, unless settles holds for the two.
func rounds(ms []*Mutator) (n int, why string) {
	type edge struct{ from, to, cost int }
	var edges []edge
	last := make([]int, len(ms))
	again := make([]int, len(ms))
	for i, m := range ms {
		if !Idempotent(m) {
			// The second application of such an AssignImage finds a domain, which it keeps.
			again[i], why = 1, m.ID()+" can take its own result for another image"
		}
		last[i] = 1 + again[i]
	}
	for i, m := range ms {
		for j := i + 1; j < len(ms); j++ {
			if Affects(m, ms[j]) {
				edges = append(edges, edge{i, j, 0})
			}
			if !Affects(ms[j], m) || settles(m, ms[j]) && !mayStopMatching(m, ms) && !mayStopMatching(ms[j], ms) && !mayMakeFail(m, ms) {
				continue
			}
			edges = append(edges, edge{j, i, 1})
			if why == "" {
				why = m.ID() + " has to run again after " + ms[j].ID()
			}
		}
	}
	for changed := true; changed; {
		changed = false
		for _, e := range edges {
			if l := min(last[e.from]+e.cost+again[e.to], manyRounds); l > last[e.to] {
				last[e.to], changed = l, true
			}
		}
	}
	return max(1, slices.Max(last)), why
}

// mayStopMatching reports whether others can make a mutator stop matching.
func mayStopMatching(m *Mutator, ms []*Mutator) bool {
	return slices.ContainsFunc(ms, func(other *Mutator) bool {
		return other != m && (other.WritesKind() || other.writesLabelOf(m))
	})
}

// mayMakeFail reports whether others write a value that makes a mutator fail.
func mayMakeFail(m *Mutator, ms []*Mutator) bool {
	return slices.ContainsFunc(ms, func(other *Mutator) bool {
		if other == m || other.From == nil || len(other.Location) > len(m.Location) {
			return false
		}
		shared, how := meet(m.Location, other.Location)
		return how == within && !m.fits(shared, other.From.constant())
	})
}

// settles reports whether a second pass of i and then j, in which i repeats a change that j has
// undone, has the result of the first pass.
func settles(i, j *Mutator) bool {
	shared, how := meet(i.Location, j.Location)
	same := len(i.Location) == len(j.Location)
	switch {
	case how != within || i.WritesKind() || j.WritesKind():
		return false
	case j.overwrites() && len(j.Location) <= len(i.Location):
		// j overwrites the result of i, unless i fails.
		return same || i.fits(shared, j.From.constant())
	case enables(j, i, shared):
		return false
	case i.overwrites() && len(i.Location) <= len(j.Location):
		// i starts from a new value, so j finds the same as in the first pass.
		return true
	case i.Image != nil && j.Image != nil:
		return Idempotent(i) && Idempotent(j)
	case i.Set != nil && j.Set != nil:
		// Values that one removes and the other adds again move to the end of the list.
		return !i.Set.Prune || j.Set.Prune || !haveCommon(i.Set.Values, j.Set.Values)
	default:
		return false
	}
}

// overwrites reports whether a mutator writes the same value in each pass,
// whatever the old one is.
func (m *Mutator) overwrites() bool {
	return m.Kind == Assign && m.From.External == nil &&
		!slices.ContainsFunc(m.Tests, func(t PathTest) bool { return t.Condition != MustExist })
}

// constant returns a value of the type that is assigned.
func (s *Source) constant() any {
	if s.Metadata != "" {
		return ""
	}
	return s.Value
}

// fits reports whether the mutator, from a depth of its location on, can walk
// into a value without meeting a wrong type.
func (m *Mutator) fits(depth int, v any) bool {
	if depth == len(m.Location) {
		return m.fitsEnd(v)
	}
	node := m.Location[depth]
	if !node.List {
		obj, ok := v.(map[string]any)
		if !ok {
			return false
		}
		child, ok := obj[node.Name]
		return !ok || m.fits(depth+1, child)
	}
	list, ok := v.([]any)
	if !ok {
		return false
	}
	end := depth+1 == len(m.Location)
	return !slices.ContainsFunc(list, func(e any) bool {
		obj, ok := e.(map[string]any)
		switch {
		case !ok:
			return node.Glob || end
		case end || !node.Glob && obj[node.Name] != node.Value:
			return false
		default:
			return !m.fits(depth+1, e)
		}
	})
}

func (m *Mutator) fitsEnd(v any) bool {
	ok := true
	switch m.Kind {
	case ModifySet:
		_, ok = v.([]any)
	case AssignImage:
		_, ok = v.(string)
	}
	return ok
}
