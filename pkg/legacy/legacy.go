// Package legacy answers one question: what does a Gatekeeper mutator mean?
//
// It decodes Assign, AssignImage, AssignMetadata and ModifySet in all their versions, rejects
// what Gatekeeper rejects, and answers questions about several mutators: their order, which of
// them contradict each other (Conflicts), and which of them have to run again after another one
// (Affects).
//
// Two other packages implement the effect of a mutator on an object.
// internal/gatekeeper/translate writes it in CEL, which mapd runs and exports as native
// policies. Package direct walks the object in Go, by Gatekeeper's rules. The two share no
// code, so that each can be tested against the other.
package legacy

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/api"
)

// Group is the API group of all mutators.
const Group = api.MutationsGroup

// Kind is one of the four kinds of mutators.
type Kind string

// The kinds, in the order in which Gatekeeper runs them.
const (
	Assign         Kind = "Assign"
	AssignImage    Kind = "AssignImage"
	AssignMetadata Kind = "AssignMetadata"
	ModifySet      Kind = "ModifySet"
)

// Mutator is one valid mutator, decoded. It is immutable.
type Mutator struct {
	Kind     Kind
	Name     string
	Location Path
	// ApplyTo is empty for an AssignMetadata, which applies to every kind.
	ApplyTo []ApplyTo
	// CreateOnly restricts the mutator to requests that create objects, whatever ApplyTo says.
	// Gatekeeper has no such field; see OnCreate.
	CreateOnly bool
	Match      Match
	// Tests are the path tests for the depths of Location, sorted by depth, at most one for
	// each. An AssignMetadata has the one that Gatekeeper adds: its label or annotation must
	// not exist.
	Tests []PathTest

	// One of these four is set. From belongs to Assign and AssignMetadata.
	From  *Source
	Set   *SetValues
	Image *Image

	// Object is the custom resource that a policy gets as parameter: in v1 (AssignImage in
	// v1alpha1), with the defaults of its CustomResourceDefinition, and with every number in
	// spec.parameters.assign.value as a float64, as Gatekeeper reads it. It must not be
	// modified.
	Object map[string]any
}

// ID returns a short name, such as "Assign/name".
func (m *Mutator) ID() string { return string(m.Kind) + "/" + m.Name }

// String returns the name of the mutator in Gatekeeper's messages.
func (m *Mutator) String() string { return string(m.Kind) + "." + Group + " /" + m.Name }

// Compare orders mutators as Gatekeeper runs them: by kind, then by the bytes of
// their names.
func Compare(a, b *Mutator) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

// Path is a location. The last node is a field, unless an Assign ends in a list selector. The
// path of an empty location has no nodes.
type Path []Node

// Node is one step of a path: into a field of an object or, for a List, into
// elements of an array. The array and its elements are different nodes.
type Node struct {
	List bool
	// Name is the name of the field, or of the field that identifies elements.
	Name string
	// Glob selects all elements.
	Glob bool
	// Value identifies the selected elements: a string or an int64. It is nil
	// for a field and for a Glob.
	Value any
}

// ApplyTo says which kinds a mutator applies to: all combinations of the three lists. There are
// no wildcards; "" is the core group.
type ApplyTo struct {
	Groups, Versions, Kinds []string
	// Operations are CREATE and UPDATE as written; none or "*" means both.
	Operations []string
}

// Match has the other criteria of a mutator. Empty criteria match everything.
type Match struct {
	Kinds                          []MatchKinds
	Scope                          string // "Cluster", "Namespaced"; any other value matches
	Namespaces, ExcludedNamespaces []string
	LabelSelector                  *metav1.LabelSelector
	NamespaceSelector              *metav1.LabelSelector
	Name                           string
	Source                         string // "", "All", "Original" or "Generated"
}

// MatchKinds is one entry of match.kinds. "*" matches any.
type MatchKinds struct{ APIGroups, Kinds []string }

// Condition is what a path test asks for.
type Condition string

// The conditions of path tests. Any other condition never holds.
const (
	MustExist    Condition = "MustExist"
	MustNotExist Condition = "MustNotExist"
)

// PathTest tests the node at a depth of the location; 0 is the first node.
type PathTest struct {
	Depth     int
	Condition Condition
}

// Source is where an Assign or AssignMetadata takes its value from. One of the three fields is
// set.
type Source struct {
	// Value is plain JSON data with floats for numbers; nil if another field is set.
	Value any
	// Metadata is "name" or "namespace"; empty if another field is set.
	Metadata string
	External *External
}

// External is a value that a Provider supplies.
type External struct {
	Provider, DataSource, FailurePolicy, Default string
	// AlwaysUsername says that the provider is asked for the user name even if the object has a
	// string there. Gatekeeper asks for that string instead.
	AlwaysUsername bool
}

// usernameAnnotation, with the value "always" on a mutator with the data source Username, sets
// AlwaysUsername. Gatekeeper ignores it.
const usernameAnnotation = "mapd.dev/username"

// Asks reports whether the mutator needs external data.
func (m *Mutator) Asks() bool { return m.From != nil && m.From.External != nil }

// SetValues says how a ModifySet changes its list.
type SetValues struct {
	// Prune removes the values; otherwise they are merged in.
	Prune  bool
	Values []any
}

// Image has the parts of an image reference that an AssignImage sets; it does not change empty
// ones. Tag begins with ":" or "@".
type Image struct{ Domain, Path, Tag string }

// Test returns the condition at a depth, "" if there is none.
func (m *Mutator) Test(depth int) (Condition, bool) {
	for _, t := range m.Tests {
		if t.Depth == depth {
			return t.Condition, true
		}
	}
	return "", false
}
