// Package kyverno answers one question: which of Kyverno's policies can be converted to native
// policies, and what prevents the others?
//
// An Assessment has a verdict for each mutate rule, and is printed as a table, JSON, Markdown or
// a page. Files returns the converted policies. The conversion itself is in
// internal/kyverno/convert. Start with Read.
package kyverno
