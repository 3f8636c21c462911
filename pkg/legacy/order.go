package legacy

// Idempotent reports whether applying the mutator to its own result changes
// nothing more.
func Idempotent(m *Mutator) bool { return false }

// Affects reports whether b may do something else than before, when it is run
// again after a changed something. It errs on the side of true.
func Affects(a, b *Mutator) bool { return false }

// Component is a set of mutators that influence each other, and none outside.
type Component struct {
	Members []*Mutator // in Gatekeeper's order
	// Rounds is how many passes in order give the result: 1, 2, or 3 for more.
	Rounds int
	Why    string // what costs the second round, "" if there is none
}

// Components divides mutators into the smallest sets that do not influence each other.
func Components(ms []*Mutator) []Component { return nil }
