// Package kyverno answers one question: which of Kyverno's policies can be native policies, and
// what stands in the way of the others?
//
// An Assessment has a verdict for each mutate rule and prints it as a table, JSON, Markdown or a
// page; Files are the policies that do what the rules did. What a rule becomes is decided in
// internal/kyverno/convert. Start with Read.
package kyverno
