// Package direct answers one question: what would Gatekeeper have made of this
// object?
//
// It interprets mutators as Gatekeeper 3.23.1 does, its quirks included. mapd
// does not run it: it is what the translation to CEL is held against, and what
// knows Gatekeeper's words for a mutation that failed.
package direct

import "github.com/mapd-project/mapd/pkg/legacy"

// Context is what a mutation knows besides the object, which carries the
// request's namespace in metadata.namespace (Gatekeeper spec §9.3).
type Context struct {
	Namespace map[string]any // the Namespace that the object is in; nil: none is known
	Operation string         // CREATE, UPDATE, or "" for neither
	Source    string         // Original or Generated
	Username  string
	UID       string // names the mutation in errors
}

// Result is what became of an object.
type Result struct {
	Object  map[string]any
	Passes  int        // until nothing changed any more; 0 if nothing changed at all
	Mutated bool       // something changed, if only from 1 to 1.0
	Touched [][]string // the mutators at work in each pass that changed something, in order
}

// System is a set of mutators, in any order. Those that are Off do not run, but
// count for the bound of passes.
type System struct {
	Mutators []*legacy.Mutator
	Off      map[string]bool // by Mutator.ID
}

// Mutate runs the mutators in passes until nothing changes. It does not modify
// obj.
func (s *System) Mutate(obj map[string]any, c Context) (Result, error) {
	return Result{Object: obj}, nil
}

// Apply runs one mutator once, whether it matches or not. It does not modify obj.
func Apply(m *legacy.Mutator, obj map[string]any, c Context) (next map[string]any, touched bool, err error) {
	return obj, false, nil
}

// Matches reports whether a mutator has anything to do with an object.
func Matches(m *legacy.Mutator, obj map[string]any, c Context) (bool, error) {
	return false, nil
}
