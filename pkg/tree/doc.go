// Package tree answers one question: what is plain JSON data, and how do two
// versions of it differ?
//
// A tree is what sigs.k8s.io/json returns for a JSON document when integers are preserved:
// map[string]any, []any, string, bool, int64, float64 and nil. A tree is immutable once another
// goroutine or package may hold it. A change copies the containers on the way to the changed
// value and shares everything else, so two versions of an object that differ in one label share
// all the rest by pointer. That makes "did anything change here" a pointer comparison (Same),
// and makes comparing two versions (Diff, Changed) cost about as much as the change itself, not
// as much as the object.
//
// Patches are RFC 6902 lists of add, replace and remove. Diff makes them for people, Patch for
// API servers, and Apply applies them. Both versions of the JSON Patch library that API servers
// and their tools are built with (github.com/evanphx/json-patch v4 and v5) apply the patches of
// Diff and Patch with the same result.
package tree
