// Package draft answers one question: what is the object of a request between its
// first mutation and its last?
//
// A Draft holds the object and the tree.Edit that changes it, so that a hundred
// policies that each add a label copy the map of labels once. A mutation writes
// settled values: what [openapi.Spot] makes of a value at its place is what an API
// server makes of it between two mutations. Where a Spot is not sure, the mutation
// is undone and done again on a copy, and the whole object is settled.
package draft
