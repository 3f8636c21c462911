package policy

import (
	"context"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Request is one admission request with its objects decoded. It is read-only
// once it has been handed to anybody; it must not be copied after its first
// use.
type Request struct {
	UID types.UID
	// Kind, Resource and SubResource describe Object as we hold it.
	Kind        schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	SubResource string
	// RequestKind, RequestResource and RequestSubResource are what the client
	// sent; they differ when the server converted the object for us.
	RequestKind        schema.GroupVersionKind
	RequestResource    schema.GroupVersionResource
	RequestSubResource string

	Name      string
	Namespace string
	Operation admissionv1.Operation
	UserInfo  authenticationv1.UserInfo
	DryRun    bool
	Options   map[string]any
	// Object and OldObject are nil when the request has none.
	Object    *unstructured.Unstructured
	OldObject *unstructured.Unstructured

	memo requestMemo
}

// requestMemo holds what is derived from a request at most once, by whichever
// evaluation needs it first.
type requestMemo struct {
	mu        sync.Mutex
	asCEL     []celRequest
	validated map[validatedKey]error
}

// Input is what one step of one policy sees.
type Input struct {
	Request *Request
	// Kind and Resource are the matched ones (spec §2.3): under matchPolicy
	// Equivalent they may name another version than the request's.
	Kind     schema.GroupVersionKind
	Resource schema.GroupVersionResource
	// Object is the current object in the matched version. These four are nil
	// where CEL sees null.
	Object    *unstructured.Unstructured
	OldObject *unstructured.Unstructured
	Params    *unstructured.Unstructured
	Namespace *unstructured.Unstructured

	Authorizer authorizer.Authorizer
	// Cost, if not nil, is increased by the CEL cost of the step.
	Cost *int64
}

// Match is the verdict of a policy's match conditions.
type Match struct {
	OK bool
	// Condition is the name of the first condition that was false; empty if OK.
	Condition string
}

// Mutator turns one object into the next.
type Mutator interface {
	// Mutate returns the next object. It never modifies in.Object, and it
	// returns in.Object itself, the same pointer, when nothing changed.
	//
	// An error that is an *apierrors.StatusError ends the whole request; any
	// other is subject to the policy's failurePolicy.
	Mutate(ctx context.Context, in Input) (*unstructured.Unstructured, error)
}

// Mutation is one entry of a policy's spec.mutations, compiled.
type Mutation struct {
	Type admissionregistrationv1.PatchType
	Mutator
}

// Deps is what compiling a policy needs and every policy shares.
type Deps struct {
	Env   *cel.Env
	Types *openapi.Types
}
