// Package draft answers one question: what is the object of a request between its
// first mutation and its last?
//
// A Draft holds the object and the tree.Edit that changes it, so that a hundred policies that
// each add a label copy the map of labels once. A mutation writes settled values:
// [openapi.Spot] converts a value as an API server does when it decodes the object between two
// mutations. If a Spot cannot decide that for the value alone, the mutation is undone and
// repeated on a copy, and the whole object is settled.
package draft
