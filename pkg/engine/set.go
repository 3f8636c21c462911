package engine

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/policy"
)

// Member is one policy of a Set with the one parameter it runs with.
type Member struct {
	// Name is what Steps call the member, such as "Assign/name".
	Name    string
	Policy  *policy.Policy
	Binding string
	Params  *unstructured.Unstructured
	// Applies says whether the member is about objects of a kind at all; nil is
	// always. It is asked about what the object says of itself, once for each
	// kind and operation, so its answer must not change.
	Applies func(gvk schema.GroupVersionKind, op admissionv1.Operation) bool
	// NamespaceSelector is held against the labels of the object's Namespace, or
	// of the object itself if that is a Namespace; other cluster-scoped objects
	// pass. Nil: none.
	NamespaceSelector labels.Selector
	// Wakes are the members, by index, that may do something else than before
	// once this one has changed something; itself included if it is not
	// idempotent. Too many are harmless, one too few is not.
	Wakes []int
}

// SetOptions say what a Set does.
type SetOptions struct {
	// Members are in the order in which they run.
	Members []Member
	// Bound is N of the at most N+1 passes; less than the number of members is
	// taken for that number.
	Bound int
	// Excludes tells of namespaces that are left alone. A Namespace is asked for
	// under its own name and other cluster-scoped objects under "". Nil: none.
	Excludes func(namespace string) bool
	// Namespace returns the Namespace of a request, which is refused if it
	// cannot. Nil: there are no Namespaces.
	Namespace func(ctx context.Context, name string) (*unstructured.Unstructured, error)
	// Explain returns the error with which a member refuses an object, in
	// Gatekeeper's words; nil leaves it to the engine. obj must not be modified.
	Explain func(member int, obj *unstructured.Unstructured, req *policy.Request, ns *unstructured.Unstructured) error
	// Shadow makes the Set look on: what it would have decided is told in
	// Decision.Shadow and nothing else comes of it.
	Shadow bool
}

// Set is policies that run in order, again and again until none of them changes
// the object any more, as Gatekeeper runs its mutators (Gatekeeper spec §8). It
// is immutable and safe for concurrent use.
type Set struct {
	options SetOptions
}

// NewSet returns a Set, which keeps o's lists.
func NewSet(o SetOptions) *Set { return &Set{options: o} }
