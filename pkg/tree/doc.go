// Package tree answers one question: what is plain JSON data, and how do two
// versions of it differ?
//
// A tree is what sigs.k8s.io/json gives for a JSON document when integers are
// preserved: map[string]any, []any, string, bool, int64, float64 and nil. A
// tree is never modified once somebody else may hold it. Whoever changes one
// copies the containers on the way to the change and shares everything else,
// so two versions of an object that differ in one label share all the rest by
// pointer. That makes "did anything change here" a pointer comparison (Same),
// and makes comparing two versions (Diff, Changed) cost about as much as the
// change itself, not as much as the object.
//
// Patches are RFC 6902 lists of add, replace and remove. Diff makes them for
// people, Patch for API servers, and Apply applies them. What Diff and Patch make
// is understood alike by both versions of the JSON Patch library that API servers
// and their tools are built with (github.com/evanphx/json-patch v4 and v5).
package tree
