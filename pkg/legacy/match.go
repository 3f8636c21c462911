package legacy

import "k8s.io/apimachinery/pkg/runtime/schema"

// Wildcard reports whether a pattern of match.name, of match.namespaces or of a
// Config matches a name.
func Wildcard(pattern, name string) bool { return false }

// WildcardPrefix reports whether a pattern of match.name matches a generateName.
func WildcardPrefix(pattern, generateName string) bool { return false }

// AppliesTo reports whether the mutator is about objects of a kind: by applyTo
// and by match.kinds. The operation is CREATE, UPDATE or, where there is none,
// "".
func (m *Mutator) AppliesTo(gvk schema.GroupVersionKind, operation string) bool { return false }
