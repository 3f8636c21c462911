package translate

// form has the differences between generated programs for one shape of
// mutators.
type form struct {
	// params: the program reads the values of mutators from params, which is
	// the mutator itself; otherwise they are literals.
	params bool
	// served: the program runs on objects from an API server, which always have metadata.
	served bool
	// recorded describes the recorded external data of the mutator; nil if the program uses none.
	recorded *recording
	// repeats, if it is not nil, replaces repeated values by variables.
	repeats *repeats
}
