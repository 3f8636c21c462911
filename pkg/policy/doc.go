// Package policy answers one question: how does one MutatingAdmissionPolicy change one object?
//
// A policy is decoded from any of its four apiVersions (Decode), validated as by a server
// (Validate), and compiled once (Compile). The compiled form is immutable and safe for
// concurrent use: Matches evaluates its match conditions, and each of its Mutations turns one
// object into the next.
//
// Objects are trees of plain JSON data that are immutable once they are shared. A mutation
// copies the containers on the path that it changes and shares the rest, so adding a label
// costs the same for a small object and for a large one, and an unchanged object has the same
// pointer.
package policy
