package translate

import "github.com/mapd-project/mapd/pkg/legacy"

// form is how generated programs come by what differs between mutators of one
// shape: written out, or read from params, which is the mutator itself.
type form struct {
	params bool
}

// condition is one named match condition.
type condition struct {
	Name string
	Expr expr
}

// patch returns what the mutator does, as a list of JSONPatch operations.
func (f form) patch(m *legacy.Mutator) expr { return expr{} }

// conditions returns what m.Match asks for beyond kinds and the namespace
// selector, in Gatekeeper's order; none if it asks for nothing. They read only
// object and request (and params).
func (f form) conditions(m *legacy.Mutator) []condition { return nil }

// kinds returns the condition that an object is of one of the kinds of the
// mutator: applyTo, with its operations, and match.kinds. It is for policies
// whose rules cannot say it exactly.
func (f form) kinds(m *legacy.Mutator) []condition { return nil }

// namespaceSelector returns match.namespaceSelector as an expression of
// mutations, where namespaceObject can be read; false if there is none.
func (f form) namespaceSelector(m *legacy.Mutator) (expr, bool) { return expr{}, false }
