package translate

// form has the differences between generated programs for one shape of
// mutators.
type form struct {
	// params: the program reads the values of mutators from params, which is
	// the mutator itself; otherwise they are literals.
	params bool
	// served: objects have metadata, as all objects that pass an API server
	// have.
	served bool
	// recorded has what is known about the external data of the mutator; nil if the
	// program cannot have any.
	recorded *recording
	// repeats, if it is not nil, makes variables of repeated values.
	repeats *repeats
}
