// Package migrate answers one question: what is written for a person who moves
// from Gatekeeper's mutators to native policies?
//
// Files are the policies and bindings, one file for each mutator or for each few
// whose order matters, as a person would have written them: a comment that says
// what the policy does and where it is from, fields in their usual order,
// expressions over lines. Write puts them into a directory, all or none. A Report
// is what became of each mutator, and what a comparison of both sides found; it is
// printed as a table, as JSON, as Markdown or as a page of HTML.
package migrate
