package legacy

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Error says why a mutator is refused.
type Error struct {
	Mutator string // "Assign/name"
	Field   string // "spec.location", "spec.parameters.pathTests[0].subPath", …
	Offset  int    // in bytes, within the field's text; -1 if there is no place in it
	Err     error
}

func (e *Error) Error() string { return e.Mutator + ": " + e.Field + ": " + e.Err.Error() }

// Unwrap returns what is wrong, without saying where.
func (e *Error) Unwrap() error { return e.Err }

// Render returns the error; if a place within a text is known, with the text
// under it and a caret under the place.
func (e *Error) Render() string { return e.Error() }

// Kinds returns the kinds in the order in which Gatekeeper runs them.
func Kinds() []Kind { return []Kind{Assign, AssignImage, AssignMetadata, ModifySet} }

// IsMutator reports whether gvk is one that Decode reads.
func IsMutator(gvk schema.GroupVersionKind) bool { return false }

// Decode reads a mutator in any of its versions. Its error is an *Error.
func Decode(u *unstructured.Unstructured) (*Mutator, error) { return nil, nil }
