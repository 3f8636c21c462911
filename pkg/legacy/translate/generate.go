package translate

// form is how generated programs come by what differs between mutators of one
// shape, and what they take for granted.
type form struct {
	// params reads the values of mutators from params, which is the mutator
	// itself; otherwise they are written out.
	params bool
	// served says that objects have metadata, as all that pass an API server have.
	served bool
	// certain reports what an API server sees to before a policy runs: that what
	// stands before the location's node d, if it is there, is what the node steps
	// into, and at the location's end what the mutator changes. Nil is nothing.
	certain func(d int) bool
	// present reports whether an API server sees to it that the field of the
	// location's node d, or the key of its list selector, is always there. Nil is
	// never.
	present func(d int) bool
}

// sure is certain; the object itself is an object.
func (f form) sure(d int) bool { return d == 0 || f.certain != nil && f.certain(d) }

func (f form) always(d int) bool { return f.present != nil && f.present(d) }
