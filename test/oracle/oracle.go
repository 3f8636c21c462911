package oracle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/generic"
	"k8s.io/apiserver/pkg/admission/plugin/policy/matching"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/mapd-project/mapd/test/cases"
)

// Oracle is the in-tree plugin with a fixed set of policies. It may be used
// from several goroutines, as a server does.
type Oracle struct {
	dispatcher generic.Dispatcher[mutating.PolicyHook]
	hooks      []mutating.PolicyHook
	builtin    *objectInterfaces
	custom     *objectInterfaces
	crds       map[schema.GroupKind]bool
}

// Result is what came out of one request.
type Result struct {
	// Object is the object after the last pass; nil if the request had none or
	// was denied.
	Object *unstructured.Unstructured
	// Status is nil if the request was allowed.
	Status *metav1.Status
	// Rounds is the number of passes that were begun.
	Rounds int
	// Panic is what the dispatcher panicked with, if it did. A server drops the
	// connection then.
	Panic any
}

// New compiles the policies and joins them with their bindings. The objects
// are those of a case: any API spelling, normal form. A nil authorizer has no
// opinion about anything.
func New(policies, bindings, params, namespaces, crds []*unstructured.Unstructured, authz authorizer.UnconditionalAuthorizer) (*Oracle, error) {
	if authz == nil {
		authz = noOpinion{}
	}
	o := &Oracle{crds: map[schema.GroupKind]bool{}}
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, u := range crds {
		crd, err := cases.DecodeCRD(u)
		if err != nil {
			return nil, err
		}
		definitions = append(definitions, crd)
		o.crds[schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind}] = true
	}
	equivalents := newEquivalents(definitions)
	o.builtin = builtinInterfaces(equivalents)
	var err error
	if o.custom, err = customInterfaces(definitions, equivalents); err != nil {
		return nil, err
	}
	types, err := newConverters(definitions)
	if err != nil {
		return nil, err
	}
	matcher, err := newMatcher(namespaces)
	if err != nil {
		return nil, err
	}
	o.dispatcher = mutating.NewDispatcher(authz, matcher, types)
	o.hooks, err = newHooks(policies, bindings, params, definitions)
	return o, err
}

func newMatcher(namespaces []*unstructured.Unstructured) (*matching.Matcher, error) {
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, u := range namespaces {
		ns := &corev1.Namespace{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, ns); err != nil {
			return nil, fmt.Errorf("namespace %q: %w", u.GetName(), err)
		}
		// An informer's objects look like this (spec §3.2, §6.1).
		ns.TypeMeta, ns.ManagedFields = metav1.TypeMeta{}, nil
		if err := store.Add(ns); err != nil {
			return nil, err
		}
	}
	// The live look-up that follows a miss finds nothing either.
	return matching.NewMatcher(corelisters.NewNamespaceLister(store), fake.NewClientset()), nil
}

func newHooks(policies, bindings, params []*unstructured.Unstructured, crds []*apiextensionsv1.CustomResourceDefinition) ([]mutating.PolicyHook, error) {
	byPolicy := map[string][]*admissionregistrationv1.MutatingAdmissionPolicyBinding{}
	for _, u := range bindings {
		b, err := DecodeBinding(u)
		if err != nil {
			return nil, err
		}
		byPolicy[b.Spec.PolicyName] = append(byPolicy[b.Spec.PolicyName], b)
	}
	var hooks []mutating.PolicyHook
	for _, u := range policies {
		p, err := DecodePolicy(u)
		if err != nil {
			return nil, err
		}
		bound := byPolicy[p.Name]
		if len(bound) == 0 {
			continue // a server makes hooks from bindings
		}
		slices.SortFunc(bound, func(a, b *admissionregistrationv1.MutatingAdmissionPolicyBinding) int {
			return cmp.Compare(a.Name, b.Name)
		})
		h := mutating.PolicyHook{Policy: p, Bindings: bound}
		if h.Evaluator, err = CompilePolicy(p); err != nil {
			return nil, err
		}
		if kind := p.Spec.ParamKind; kind != nil {
			if err := resolveParams(&h, schema.FromAPIVersionAndKind(kind.APIVersion, kind.Kind), params, crds); err != nil {
				return nil, err
			}
		}
		hooks = append(hooks, h)
	}
	slices.SortFunc(hooks, func(a, b mutating.PolicyHook) int { return cmp.Compare(a.Policy.Name, b.Policy.Name) })
	return hooks, nil
}

// resolveParams is what a server's policy source does with a paramKind: find
// the resource, its scope, and an informer for it.
func resolveParams(h *mutating.PolicyHook, gvk schema.GroupVersionKind, params []*unstructured.Unstructured, crds []*apiextensionsv1.CustomResourceDefinition) error {
	var resource schema.GroupResource
	namespaced := false
	switch i := slices.IndexFunc(crds, func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd.Spec.Group == gvk.Group && crd.Spec.Names.Kind == gvk.Kind &&
			slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == gvk.Version && v.Served })
	}); {
	case i >= 0:
		resource = schema.GroupResource{Group: gvk.Group, Resource: crds[i].Spec.Names.Plural}
		namespaced = crds[i].Spec.Scope == apiextensionsv1.NamespaceScoped
	case slices.Contains(builtinResources(), gvk):
		gvr, _ := meta.UnsafeGuessKindToResource(gvk)
		resource, namespaced = gvr.GroupResource(), cases.Namespaced(gvk.GroupKind())
	default:
		h.ConfigurationError = fmt.Errorf("failed to find resource referenced by paramKind: '%v'", gvk)
		return nil
	}
	h.ParamScope = meta.RESTScopeRoot
	if namespaced {
		h.ParamScope = meta.RESTScopeNamespace
	}
	var mine []*unstructured.Unstructured
	for _, u := range params {
		if u.GroupVersionKind() == gvk {
			mine = append(mine, u)
		}
	}
	store, err := newParamStore(resource, mine)
	h.ParamInformer = store
	return err
}

// Request is a request whose objects are decoded, ready to be admitted any
// number of times.
type Request struct {
	spec       cases.RequestSpec
	object     runtime.Object
	old        runtime.Object
	options    runtime.Object
	user       user.Info
	interfaces *objectInterfaces
}

// Prepare decodes the objects of a request: typed for a built-in kind, trees
// for everything else.
func (o *Oracle) Prepare(spec cases.RequestSpec) (*Request, error) {
	r := &Request{spec: spec, interfaces: o.builtin}
	if !scheme.Scheme.Recognizes(spec.Kind) {
		r.interfaces = o.custom
	}
	decode := func(u *unstructured.Unstructured) (runtime.Object, error) {
		if u == nil {
			return nil, nil
		}
		if scheme.Scheme.Recognizes(u.GroupVersionKind()) {
			return toTyped(u)
		}
		return u.DeepCopy(), nil
	}
	var err error
	if r.object, err = decode(spec.Object); err != nil {
		return nil, err
	}
	if r.old, err = decode(spec.OldObject); err != nil {
		return nil, err
	}
	info := &user.DefaultInfo{Name: spec.User.Username, UID: spec.User.UID, Groups: spec.User.Groups}
	for key, values := range spec.User.Extra {
		if info.Extra == nil {
			info.Extra = map[string][]string{}
		}
		info.Extra[key] = values
	}
	r.user = info
	if spec.Options != nil {
		switch spec.Operation {
		case "CREATE":
			r.options = &metav1.CreateOptions{}
		case "UPDATE":
			r.options = &metav1.UpdateOptions{}
		default:
			r.options = &metav1.DeleteOptions{}
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(spec.Options, r.options, true); err != nil {
			return nil, fmt.Errorf("options: %w", err)
		}
	}
	return r, nil
}

// shallow copies the outermost value, which is all that the dispatcher writes
// to: it replaces the content of the object it was given.
func shallow(obj runtime.Object) runtime.Object {
	switch obj := obj.(type) {
	case nil:
		return nil
	case *unstructured.Unstructured:
		return &unstructured.Unstructured{Object: obj.Object}
	default:
		out := reflect.New(reflect.TypeOf(obj).Elem())
		out.Elem().Set(reflect.ValueOf(obj).Elem())
		return out.Interface().(runtime.Object)
	}
}

// excluded are the resources that no policy from the API sees (spec §2.7;
// k8s.io/apiserver …/policy/generic/plugin.go and the server's own list).
var excluded = map[schema.GroupResource]bool{
	{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}:                       true,
	{Group: "authentication.k8s.io", Resource: "tokenreviews"}:                             true,
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}:                 true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}:                  true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:                   true,
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:                      true,
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}:       true,
	{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"}: true,
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicies"}:         true,
	{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"}:   true,
}

// Dispatch runs the passes of one request and returns the object as the
// dispatcher left it. It is the part that a benchmark measures: attributes are
// built per request, as in a server, and objects are not decoded.
func (o *Oracle) Dispatch(ctx context.Context, r *Request) (obj runtime.Object, rounds int, err error) {
	s := &r.spec
	object, old := shallow(r.object), shallow(r.old)
	attributes := admission.NewAttributesRecord(object, old, s.Kind, s.Namespace, s.Name, s.Resource, s.SubResource,
		admission.Operation(s.Operation), r.options, s.DryRun, r.user)
	if s.Operation == "DELETE" || excluded[s.Resource.GroupResource()] {
		return object, 1, nil
	}
	if err := o.dispatcher.Dispatch(ctx, attributes, r.interfaces, o.hooks); err != nil {
		return object, 1, err
	}
	passes := attributes.GetReinvocationContext()
	if !passes.ShouldReinvoke() {
		return object, 1, nil
	}
	passes.SetIsReinvoke()
	return object, 2, o.dispatcher.Dispatch(ctx, attributes, r.interfaces, o.hooks)
}

// Admit is Dispatch with a result that can be compared. A panic of the
// dispatcher is reported, not passed on.
func (o *Oracle) Admit(ctx context.Context, r *Request) (result Result) {
	defer func() {
		if p := recover(); p != nil {
			result = Result{Panic: p}
		}
	}()
	object, rounds, err := o.Dispatch(ctx, r)
	result.Rounds = rounds
	if err != nil {
		result.Status = status(err)
		return result
	}
	switch object := object.(type) {
	case nil:
	case *unstructured.Unstructured:
		result.Object = object
	default:
		gvk := object.GetObjectKind().GroupVersionKind()
		if gvk.Empty() {
			gvk = r.spec.Kind
		}
		if result.Object, err = cases.Untyped(object, gvk); err != nil {
			result = Result{Status: status(err), Rounds: rounds}
		}
	}
	return result
}

// status returns an error as the server would send it, with a fixed order where
// the server has none.
func status(err error) *metav1.Status {
	var known *apierrors.StatusError
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	s := known.ErrStatus.DeepCopy()
	s.Message = settled(s.Message)
	if s.Details != nil {
		for i := range s.Details.Causes {
			s.Details.Causes[i].Message = settled(s.Details.Causes[i].Message)
		}
	}
	return s
}

// settled sorts what a message lists in map order: the paths of the atomic
// guard (spec §7.3, trap T35) and the names of the type-name check (spec §6.3).
func settled(message string) string {
	for _, list := range []struct{ after, separator string }{
		{"may not mutate atomic arrays, maps or structs: ", ", "},
		{"denied request: type mismatch: ", "\n"},
	} {
		if head, tail, ok := strings.Cut(message, list.after); ok {
			all := strings.Split(tail, list.separator)
			slices.Sort(all)
			return head + list.after + strings.Join(all, list.separator)
		}
	}
	return message
}

// Run is the whole of a case: build, prepare, admit.
func Run(ctx context.Context, c *cases.Case) (Result, error) {
	authz, err := rbacAuthorizer(c)
	if err != nil {
		return Result{}, err
	}
	o, err := New(c.Policies, c.Bindings, c.Params, c.Namespaces, c.CRDs, authz)
	if err != nil {
		return Result{}, err
	}
	r, err := o.Prepare(c.Request)
	if err != nil {
		return Result{}, err
	}
	return o.Admit(ctx, r), nil
}

type noOpinion struct{}

func (noOpinion) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", nil
}
