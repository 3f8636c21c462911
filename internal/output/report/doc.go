// Package report answers one question: what did the policies do, in words for people?
//
// Diff returns the fields that differ between two versions of an object; list elements are named
// by their keys (containers[name=app].image). Summary describes a Decision: which policy changed
// which fields, because of which binding and parameter, and what was skipped and why. The package
// does not lay out pages: internal/output/page does.
package report
