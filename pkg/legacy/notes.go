package legacy

// Note is something that is allowed and probably not meant.
type Note struct{ Field, Message string }

// Notes returns what a reader of the mutator ought to know, by field.
func Notes(m *Mutator) []Note { return nil }
