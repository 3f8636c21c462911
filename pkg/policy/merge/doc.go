// Package merge answers one question: what does the apply configuration of a policy
// make of an object?
//
// Results and errors are structured-merge-diff's, but only what the configuration
// names is walked.
package merge
