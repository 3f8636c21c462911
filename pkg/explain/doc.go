// Package explain answers one question: why did policies make this of an object, and not
// something else?
//
// Explainer.WhyNot says for each policy and binding that did not meet a request which of its
// criteria failed first, with what it asks for and what the request has. It asks the
// stages of the Engine that decided; nothing here matches by rules of its own. BlameOf
// says which mutations wrote which fields of the result. TraceOf says what the expressions
// of a Decision read and gave.
package explain
