// Package merge answers one question: how does the apply configuration of a policy change an
// object?
//
// Results and errors are those of structured-merge-diff, but merge only walks the parts of the
// object that the configuration names.
package merge
