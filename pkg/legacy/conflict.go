package legacy

// Conflict is a disagreement of mutators about the shape of objects.
type Conflict struct {
	Members []string // as Mutator.String has it, sorted
}

func (c Conflict) Error() string { return "" }

// Conflicts returns the mutators that are off because others disagree with them
// about the shape of an object, by ID.
func Conflicts(ms []*Mutator) map[string]Conflict { return nil }

// Reported returns the mutators that Gatekeeper's status would show as
// conflicting although they run, by ID.
func Reported(ms []*Mutator) map[string]Conflict { return nil }
