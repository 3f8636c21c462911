// Package legacy answers one question: what does a Gatekeeper mutator say?
//
// It reads Assign, AssignImage, AssignMetadata and ModifySet in all their
// versions, refuses what Gatekeeper refuses, and answers questions about
// several mutators: their order, which of them contradict each other
// (Conflicts), and which of them have to run again after another one (Affects).
//
// What a mutator does to an object is implemented twice, elsewhere. Package
// translate says it in CEL, which mapd runs and writes out as native policies.
// Package direct walks the object in Go, by Gatekeeper's rules. The two share
// nothing, so that each can be checked against the other.
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

// Mutator is one mutator, decoded and found valid. It is immutable.
type Mutator struct {
	Kind     Kind
	Name     string
	Location Path
	// ApplyTo is empty for an AssignMetadata, which applies to every kind.
	ApplyTo []ApplyTo
	// CreateOnly narrows the mutator to requests that create objects, whatever ApplyTo
	// says. Gatekeeper has no such field; see OnCreate.
	CreateOnly bool
	Match      Match
	// Tests are the path tests that belong to a depth of Location, by depth and
	// at most one for each. An AssignMetadata has the one that Gatekeeper adds:
	// its label or annotation must not exist.
	Tests []PathTest

	// One of these four is set. From belongs to Assign and AssignMetadata.
	From  *Source
	Set   *SetValues
	Image *Image

	// Object is the custom resource as a parameter: in v1 (AssignImage in
	// v1alpha1), with the defaults of its CustomResourceDefinition, and with
	// every number in spec.parameters.assign.value as a float64, which is what
	// Gatekeeper reads there. It must not be modified.
	Object map[string]any
}

// ID names a mutator for people: "Assign/name".
func (m *Mutator) ID() string { return string(m.Kind) + "/" + m.Name }

// String names a mutator as Gatekeeper's messages do.
func (m *Mutator) String() string { return string(m.Kind) + "." + Group + " /" + m.Name }

// Compare orders mutators as Gatekeeper runs them: by kind, then by the bytes of
// their names.
func Compare(a, b *Mutator) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

// Path is a location. The last node is a field, unless an Assign ends in a list
// selector. A path has no nodes only if the location was empty.
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

// ApplyTo says which kinds a mutator is about: all combinations of the three.
// There are no wildcards; "" is the core group.
type ApplyTo struct {
	Groups, Versions, Kinds []string
	// Operations are CREATE and UPDATE, as they were given; none or "*" are both.
	Operations []string
}

// Match has the other criteria of a mutator. Empty ones hold.
type Match struct {
	Kinds                          []MatchKinds
	Scope                          string // "Cluster", "Namespaced"; anything else holds
	Namespaces, ExcludedNamespaces []string
	LabelSelector                  *metav1.LabelSelector
	NamespaceSelector              *metav1.LabelSelector
	Name                           string
	Source                         string // "", "All", "Original" or "Generated"
}

// MatchKinds is one entry of match.kinds. "*" is any.
type MatchKinds struct{ APIGroups, Kinds []string }

// Condition is what a path test asks for.
type Condition string

// The conditions of path tests. Any other never holds, whatever is there.
const (
	MustExist    Condition = "MustExist"
	MustNotExist Condition = "MustNotExist"
)

// PathTest tests what is at a depth of the location; 0 is its first node.
type PathTest struct {
	Depth     int
	Condition Condition
}

// Source is where an Assign or AssignMetadata takes its value from: one of
// three.
type Source struct {
	// Value is plain JSON data with floats for numbers; nil if it is not this.
	Value any
	// Metadata is "name", "namespace" or, if it is not this, empty.
	Metadata string
	External *External
}

// External is a value that a Provider supplies.
type External struct {
	Provider, DataSource, FailurePolicy, Default string
	// AlwaysUsername says that the user name is asked for also where there is a string
	// already, which Gatekeeper asks for instead.
	AlwaysUsername bool
}

// usernameAnnotation on a mutator with the data source Username and the value "always"
// makes mapd ask for the user name everywhere. Gatekeeper does not know it.
const usernameAnnotation = "mapd.dev/username"

// Asks reports whether the mutator needs external data.
func (m *Mutator) Asks() bool { return m.From != nil && m.From.External != nil }

// SetValues is what a ModifySet does to its list.
type SetValues struct {
	// Prune removes the values; otherwise they are merged in.
	Prune  bool
	Values []any
}

// Image has the parts of an image reference that an AssignImage sets; empty
// ones are left as they are. Tag begins with ":" or "@".
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
