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

// Source is the origin of the object of a request.
type Source uint8

const (
	// Original is the object of a client's request.
	Original Source = iota
	// Generated is an object that a controller will create for a client's object, and that mapd
	// derives beforehand.
	Generated
)

// String returns the source as Gatekeeper spells it.
func (s Source) String() string { return [...]string{Original: "Original", Generated: "Generated"}[s] }

// Request is one admission request with its objects decoded. It is read-only once it is shared,
// and must not be copied after its first use.
type Request struct {
	UID types.UID
	// Kind, Resource and SubResource describe Object in the version that the request carries.
	Kind        schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	SubResource string
	// RequestKind, RequestResource and RequestSubResource are those that the client sent. They
	// differ if the server converted the object for the webhook.
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
	// Time is the time of the request, which decides whether an exception has ended; zero means
	// the time of the evaluation.
	Time time.Time
	// Memory is charged for allocations that depend on the size of the request's objects and of
	// the policies' results. Nil means no limit.
	Memory *memory.Account

	memo requestMemo
}

// NewRequest returns the request for an object of a kind in types, sent by an administrator. A
// namespaced object without a namespace gets the namespace default. The object should have the
// form in which a server holds it (openapi.Kind.Normalize).
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

// Beside returns a copy of r whose memory is charged to another account, for policies that are
// evaluated and not enforced.
func (r *Request) Beside(account *memory.Account) *Request {
	return &Request{
		UID: r.UID, Kind: r.Kind, Resource: r.Resource, SubResource: r.SubResource,
		RequestKind: r.RequestKind, RequestResource: r.RequestResource, RequestSubResource: r.RequestSubResource,
		Name: r.Name, Namespace: r.Namespace, Operation: r.Operation, UserInfo: r.UserInfo, DryRun: r.DryRun,
		Options: r.Options, Source: r.Source, Object: r.Object, OldObject: r.OldObject, Time: r.Time, Memory: account,
	}
}

// requestMemo holds values that are derived from a request at most once, by the first step that
// needs them.
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

// celRequest returns the variable request for a matched kind and resource: an AdmissionRequest
// without its objects, without the fields that JSON omits (k8s.io/apiserver
// …/plugin/cel/condition.go: CreateAdmissionRequest; spec §6.1).
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

// client returns the kind, resource and subresource that the client sent. The in-tree plugin
// sees requests before any conversion, so these are the request's kind and resource there.
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

// User returns the user who makes the request, for authorizers.
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

// requestResource implements the attributes of authorizer.requestResource.
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

// Input is the input of one step of one policy.
type Input struct {
	Request *Request
	// Kind and Resource are the matched ones (spec §2.3): under matchPolicy
	// Equivalent they may name another version than the request's.
	Kind     schema.GroupVersionKind
	Resource schema.GroupVersionResource
	// Object is the current object in the matched version. These four are nil if the CEL
	// variables are null.
	Object    *unstructured.Unstructured
	OldObject *unstructured.Unstructured
	Params    *unstructured.Unstructured
	Namespace *unstructured.Unstructured

	Authorizer authorizer.UnconditionalAuthorizer
	Run
}

// Run is what all evaluations of one request share: their limits, and where they add their
// results. Each field may be nil.
type Run struct {
	// Draft has Input.Object as its object; mutations write to it.
	Draft *Draft
	// Cost is increased by the CEL cost of the step.
	Cost *int64
	// Grown is the estimated number of bytes that mutations have added to the object since its
	// size was last computed.
	Grown *int64
	// Remarks is where a mutation stores its warnings and annotations.
	Remarks *Remarks
	// Outside answers calls of externalData.
	Outside cel.Outside
	// Turn schedules evaluations that take long.
	Turn cel.Turn
}

// Remarks are the results of a policy of Kubewarden's besides the object.
type Remarks struct {
	// Warnings are for the client.
	Warnings []string
	// Annotations are for the audit event.
	Annotations map[string]string
	// Withheld says what the policy would have done if its result were applied; empty if it is
	// applied.
	Withheld string
}

// Match is the result of a policy's match conditions.
type Match struct {
	OK bool
	// Condition is the name of the first condition that was false; empty if OK.
	Condition string
}

// Mutator turns one object into the next.
type Mutator interface {
	// Mutate returns the next object. It never modifies in.Object, except through in.Draft, and
	// returns in.Object itself, the same pointer, if nothing changed.
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

// Deps are the dependencies of compiling a policy, which all policies share.
type Deps struct {
	Env   *cel.Env
	Types *openapi.Types
}
