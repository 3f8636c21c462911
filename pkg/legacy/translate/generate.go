package translate

// form is how generated programs come by what differs between mutators of one
// shape, and what they take for granted.
type form struct {
	// params reads the values of mutators from params, which is the mutator
	// itself; otherwise they are written out.
	params bool
	// served says that objects have metadata, as all that pass an API server have.
	served bool
}
