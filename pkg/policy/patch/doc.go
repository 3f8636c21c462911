// Package patch answers one question: what does the JSON patch of a policy make of an
// object?
//
// Patches have the semantics of gopkg.in/evanphx/json-patch.v4, which API servers
// apply them with, down to its oddities and its texts.
package patch
