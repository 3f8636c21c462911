package store

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/policy"
)

// Snapshot is all that a Store has to say about policies and bindings at one
// time. It is immutable.
type Snapshot struct {
	Policies []PolicyState  // by name
	Bindings []BindingState // by name
}

// PolicyState is one policy and what has become of it.
type PolicyState struct {
	// Object is the policy as it is stored, without managedFields. It must not
	// be modified.
	Object *unstructured.Unstructured
	// Policy is a policy.Broken one if Errs is not empty.
	Policy *policy.Policy
	// Errs are all reasons why the policy cannot run.
	Errs []error
	// Warnings are about what compiles and will not do what its author meant.
	Warnings []policy.Warning
	// ParamKind is nil for a policy that has none.
	ParamKind *ParamState
	// Bound says that a binding which can apply names the policy.
	Bound bool
}

// ParamState is what is known of a kind of parameters.
type ParamState struct {
	GVK schema.GroupVersionKind
	// Found says that the server serves the kind, Synced that its objects are
	// held in memory.
	Found, Synced bool
	// Err is why they are not.
	Err error
}

// BindingState is one binding and what has become of it.
type BindingState struct {
	// Object is the binding as it is stored, without managedFields. It must not
	// be modified.
	Object     *unstructured.Unstructured
	PolicyName string
	// PolicyFound says that the policy exists, be it a broken one.
	PolicyFound bool
	// Err is why the binding cannot apply.
	Err error
}
