// Package mutators answers one question: how do these Gatekeeper mutators become
// a Set that an engine runs?
//
// A Builder translates mutators by their shape (see internal/gatekeeper/translate), of
// which there are few, compiles each shape once and keeps it for the next build,
// and puts mutators that run into an engine.Set in Gatekeeper's order. A Result has
// the State of every mutator: whether it runs and, if not, why.
package mutators
