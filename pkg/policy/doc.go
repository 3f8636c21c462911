// Package policy answers one question: what does one MutatingAdmissionPolicy
// make of one object?
//
// A policy is decoded from any of its four spellings (Decode), checked as a
// server would check it (Validate), and compiled once (Compile). The compiled
// form is immutable and safe for concurrent use: Matches evaluates its match
// conditions, and each of its Mutations turns one object into the next.
//
// Objects are trees of plain JSON data that are never modified once somebody
// else may hold them. A mutation copies along the path that it touches and
// shares the rest, so a label costs the same on a small object and on a large
// one, and an unchanged object is recognised by its pointer.
package policy
