// Package migrate answers one question: which files does a user get who moves from Gatekeeper's
// mutators to native policies?
//
// Files formats policies and bindings as people write them, with one file for each mutator or
// group of mutators whose order matters: a comment that describes the policy and its source,
// fields in their usual order, expressions over several lines. Write puts them into a directory,
// all or none. A Report has the result for each mutator and the outcome of a comparison, and is
// printed as a table, JSON, Markdown or HTML. The translation itself is in
// internal/gatekeeper/translate. Start reading at Input.
package migrate
