// Package explain answers one question: why is this the result of the policies, and not another
// one?
//
// Explainer.WhyNot returns, for each policy and binding that did not match a request, the
// criterion that failed first, what it asks for and what the request has. The stages of the
// Engine that made the decision supply this; the package has no matching rules of its own.
// BlameOf returns which mutations wrote which fields of the result. TraceOf returns what the
// expressions of a Decision read and returned.
package explain
