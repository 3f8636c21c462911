// Package migrate answers one question: what is written for a person who moves
// from Gatekeeper's mutators to native policies?
//
// Files formats the policies and bindings as a person would write them, one
// file for each mutator or for each few whose order matters: a comment that
// says what the policy does and where it is from, fields in their usual order,
// expressions over several lines. Write puts them into a directory, all or
// none. A Report says what became of each mutator and what a comparison of both
// sides found. It is printed as a table, as JSON, as Markdown or as a page of
// HTML.
package migrate
