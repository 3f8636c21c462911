// Package report answers one question: what did the policies do, in words that
// a person reads?
//
// Diff prints two versions of an object as the list of fields that differ, with
// list elements called by their keys (containers[name=app].image). Summary
// prints a Decision: which policy, through which binding and with which
// parameter, changed which fields, what was skipped and why.
package report
