// Package patch answers one question: how does the JSON patch of a policy change an object?
//
// Patches have the semantics and the error texts of gopkg.in/evanphx/json-patch.v4, with which
// API servers apply them, including its quirks.
package patch
