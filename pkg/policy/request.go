package policy

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Source is where the object of a request comes from.
type Source uint8

const (
	// Original is the object of a client's request.
	Original Source = iota
	// Generated is an object that a controller will make of a client's, which was
	// found out beforehand.
	Generated
)

// String returns the source as Gatekeeper spells it.
func (s Source) String() string { return [...]string{Original: "Original", Generated: "Generated"}[s] }

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
	Source    Source
	// Object and OldObject are nil when the request has none.
	Object    *unstructured.Unstructured
	OldObject *unstructured.Unstructured
	// Time is when the request is made, for exceptions that end; zero: when it is evaluated.
	Time time.Time
	// Memory is charged for what the request allocates in proportion to its
	// objects and to what policies compute. Nil: nothing bounds it.
	Memory *memory.Account

	memo requestMemo
}

// NewRequest returns the request for an object of a kind that types have, as its
// administrator would send it. A namespaced object without a namespace goes to the
// namespace default. The object should be as a server holds it (openapi.Kind,
// Normalize).
func NewRequest(types *openapi.Types, operation admissionv1.Operation, obj *unstructured.Unstructured) (*Request, error) {
	kind := obj.GroupVersionKind()
	res, ok := types.ResourceFor(kind)
	if !ok {
		return nil, fmt.Errorf("no matches for kind %q in version %q", kind.Kind, kind.GroupVersion())
	}
	namespace := ""
	switch {
	case res.Namespaced:
		namespace = cmp.Or(obj.GetNamespace(), "default")
	case kind == schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}:
		namespace = obj.GetName() // spec §6.1
	}
	return &Request{
		Kind: kind, Resource: res.GVR, RequestKind: kind, RequestResource: res.GVR,
		Name: obj.GetName(), Namespace: namespace, Operation: operation, Object: obj,
		UserInfo: authenticationv1.UserInfo{
			Username: "kubernetes-admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated},
		},
	}, nil
}

// Beside returns a request that is r, for work beside it whose memory is charged to
// another account.
func (r *Request) Beside(account *memory.Account) *Request {
	return &Request{
		UID: r.UID, Kind: r.Kind, Resource: r.Resource, SubResource: r.SubResource,
		RequestKind: r.RequestKind, RequestResource: r.RequestResource, RequestSubResource: r.RequestSubResource,
		Name: r.Name, Namespace: r.Namespace, Operation: r.Operation, UserInfo: r.UserInfo, DryRun: r.DryRun,
		Options: r.Options, Source: r.Source, Object: r.Object, OldObject: r.OldObject, Time: r.Time, Memory: account,
	}
}

// requestMemo holds what is derived from a request at most once, by whichever
// step needs it first.
type requestMemo struct {
	mu    sync.Mutex
	asCEL []celRequest
}

// celRequest is the variable request for one matched kind and resource.
type celRequest struct {
	kind     schema.GroupVersionKind
	resource schema.GroupVersionResource
	value    map[string]any
}

// celRequest is the variable request as an expression sees it when kind and
// resource are the matched ones: an AdmissionRequest without its objects, its
// fields absent where JSON omits them
// (k8s.io/apiserver …/plugin/cel/condition.go: CreateAdmissionRequest; spec §6.1).
func (r *Request) celRequest(kind schema.GroupVersionKind, resource schema.GroupVersionResource) map[string]any {
	r.memo.mu.Lock()
	defer r.memo.mu.Unlock()
	for i := range r.memo.asCEL {
		if c := &r.memo.asCEL[i]; c.kind == kind && c.resource == resource {
			return c.value
		}
	}
	clientKind, clientResource, subResource := r.client()
	v := map[string]any{
		"uid":             "",
		"kind":            kindValue(kind),
		"resource":        resourceValue(resource),
		"requestKind":     kindValue(clientKind),
		"requestResource": resourceValue(clientResource),
		"operation":       string(r.Operation),
		"userInfo":        userValue(r.UserInfo),
		"dryRun":          r.DryRun,
		"object":          nil,
		"oldObject":       nil,
		"options":         nil,
	}
	setString(v, "subResource", subResource)
	setString(v, "requestSubResource", subResource)
	setString(v, "name", r.Name)
	setString(v, "namespace", r.Namespace)
	if r.Options != nil {
		v["options"] = r.Options
	}
	r.memo.asCEL = append(r.memo.asCEL, celRequest{kind, resource, v})
	return v
}

// client is what the client asked for, which is what the in-tree plugin, that
// sees requests before any conversion, calls the request's kind and resource.
func (r *Request) client() (schema.GroupVersionKind, schema.GroupVersionResource, string) {
	kind, resource, subResource := r.RequestKind, r.RequestResource, r.RequestSubResource
	if kind.Empty() {
		kind = r.Kind
	}
	if resource.Empty() {
		resource, subResource = r.Resource, r.SubResource
	}
	return kind, resource, subResource
}

func kindValue(k schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": k.Group, "version": k.Version, "kind": k.Kind}
}

func resourceValue(r schema.GroupVersionResource) map[string]any {
	return map[string]any{"group": r.Group, "version": r.Version, "resource": r.Resource}
}

func userValue(u authenticationv1.UserInfo) map[string]any {
	v := map[string]any{}
	setString(v, "username", u.Username)
	setString(v, "uid", u.UID)
	if len(u.Groups) > 0 {
		v["groups"] = stringsValue(u.Groups)
	}
	if len(u.Extra) > 0 {
		extra := make(map[string]any, len(u.Extra))
		for k, e := range u.Extra {
			if e == nil {
				extra[k] = nil
				continue
			}
			extra[k] = stringsValue(e)
		}
		v["extra"] = extra
	}
	return v
}

func stringsValue(list []string) []any {
	v := make([]any, len(list))
	for i, s := range list {
		v[i] = s
	}
	return v
}

func setString(m map[string]any, key, s string) {
	if s != "" {
		m[key] = s
	}
}

// User is who makes the request, as authorizers take it.
func (r *Request) User() user.Info {
	info := &user.DefaultInfo{Name: r.UserInfo.Username, UID: r.UserInfo.UID, Groups: r.UserInfo.Groups}
	if len(r.UserInfo.Extra) > 0 {
		info.Extra = make(map[string][]string, len(r.UserInfo.Extra))
		for k, v := range r.UserInfo.Extra {
			info.Extra[k] = v
		}
	}
	return info
}

// requestResource is what authorizer.requestResource checks.
type requestResource struct{ r *Request }

func (a requestResource) GetName() string      { return a.r.Name }
func (a requestResource) GetNamespace() string { return a.r.Namespace }
func (a requestResource) GetResource() schema.GroupVersionResource {
	_, resource, _ := a.r.client()
	return resource
}
func (a requestResource) GetSubresource() string {
	_, _, subResource := a.r.client()
	return subResource
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

	Authorizer authorizer.UnconditionalAuthorizer
	Run
}

// Run is what evaluations of one request share: what bounds them, and what they leave behind.
// Each field may be nil.
type Run struct {
	// Draft has Input.Object as its object; mutations write to it.
	Draft *Draft
	// Cost is increased by the CEL cost of the step.
	Cost *int64
	// Grown is about how many bytes mutations have added to the object since its size was
	// looked at.
	Grown *int64
	// Remarks is where a mutation puts what it says besides.
	Remarks *Remarks
	// Outside answers what expressions ask with externalData.
	Outside cel.Outside
	// Turn decides when an evaluation that takes long goes on.
	Turn cel.Turn
}

// Remarks are what a policy of Kubewarden's says besides the object.
type Remarks struct {
	// Warnings are for the client.
	Warnings []string
	// Annotations are for the audit event.
	Annotations map[string]string
	// Withheld says what the policy would have done if its result counted, empty if
	// it does.
	Withheld string
}

// Match is the answer of a policy's match conditions.
type Match struct {
	OK bool
	// Condition is the name of the first condition that was false; empty if OK.
	Condition string
}

// Mutator turns one object into the next.
type Mutator interface {
	// Mutate returns the next object. It never modifies in.Object, but for what
	// belongs to in.Draft, and it returns in.Object itself, the same pointer,
	// when nothing changed.
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
