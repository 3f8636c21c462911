package validating

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	caching "k8s.io/apiserver/pkg/admission/plugin/authorizer"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/mapd-project/mapd/internal/apiserver/defaulting"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Sources are what a Set looks up for each object. All must be safe for concurrent use.
type Sources struct {
	binding.Sources
	// Types knows the kinds of the objects.
	Types *openapi.Types
	// Convert returns obj as another version of itself, as for engine.Options.
	Convert func(obj *unstructured.Unstructured, to schema.GroupVersionKind) (*unstructured.Unstructured, error)
	// Authorizer answers the expressions' authorizer variable.
	Authorizer authorizer.UnconditionalAuthorizer
}

// Set is policies and bindings that judge together, and Pod Security. It is immutable
// and safe for concurrent use.
type Set struct {
	sources  Sources
	index    *binding.Index
	programs map[string]*Program
	actions  map[string][]admissionregistrationv1.ValidationAction // by the name of the binding
	security *security
}

// NewSet joins policies and bindings. A policy without a binding and a binding to an
// unknown policy have no effect, as in a cluster. It is an error if two policies or
// two bindings share a name.
func NewSet(policies []*Program, bindings []*Bound, src Sources) (*Set, error) {
	s := &Set{sources: src, programs: map[string]*Program{}, actions: map[string][]admissionregistrationv1.ValidationAction{}}
	rules := make([]*policy.Policy, len(policies))
	for i, p := range policies {
		rules[i], s.programs[p.Name()] = p.rules, p
	}
	bound := make([]*binding.Binding, len(bindings))
	for i, b := range bindings {
		bound[i], s.actions[b.Name()] = b.Binding, b.actions
	}
	var err error
	if s.index, err = binding.NewIndex(rules, bound, src.Sources); err != nil {
		return nil, err
	}
	s.security, err = newSecurity(s)
	return s, err
}

// maxViolations bounds the Violations of one object, because nobody reads more.
const maxViolations = 200

// Judge returns what a server would say about object, the result of mutating the object of req.
// An error means that there is no Result, because ctx ended or the namespace cannot be read.
// Judge modifies nothing.
func (s *Set) Judge(ctx context.Context, req *policy.Request, object *unstructured.Unstructured) (Result, error) {
	object, err := s.settle(object)
	if err != nil {
		return Result{}, err
	}
	object, warnings := prepare(req, object)
	j := &judgement{Set: s, ctx: ctx, req: req, object: object, authorizer: caching.NewCachingAuthorizer(s.sources.Authorizer)}
	for _, w := range warnings {
		j.add(w)
	}
	if err := j.policies(); err != nil {
		return Result{}, err
	}
	if err := j.podSecurity(); err != nil {
		return Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("validation takes too long: %w", context.Cause(ctx))
	}
	return j.result, nil
}

// settle returns an object as a server's validation sees it: with defaults for fields that
// mutation left out, in the canonical form of its kind.
func (s *Set) settle(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if object == nil {
		return nil, nil
	}
	kind, err := s.sources.Types.Kind(object.GroupVersionKind())
	if err != nil {
		return object, nil // without a schema, the object is used as it is
	}
	content, _ := defaulting.Apply(object.Object)
	if content, err = kind.Normalize(content); err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// judgement is the state of one call of Judge.
type judgement struct {
	*Set
	ctx        context.Context
	req        *policy.Request
	object     *unstructured.Unstructured
	authorizer authorizer.UnconditionalAuthorizer
	result     Result

	attributes admission.Attributes
	versions   map[schema.GroupVersionKind]*admission.VersionedAttributes
	namespace  *corev1.Namespace
}

// policies adds the violations of the policies.
func (j *judgement) policies() error {
	var met binding.Selection
	j.index.SelectInto(&met, j.ctx, j.req, j.object)
	if len(met.Invocations) == 0 {
		return nil
	}
	j.attributes = j.newAttributes()
	j.versions = map[schema.GroupVersionKind]*admission.VersionedAttributes{}
	for i := range met.Invocations {
		if j.ctx.Err() != nil || len(j.result.Violations) >= maxViolations {
			return nil
		}
		if err := j.invoke(&met.Invocations[i]); err != nil {
			return err
		}
	}
	return nil
}

// invoke evaluates a policy with a binding and a parameter, as the server's
// dispatcher does (k8s.io/apiserver …/policy/validating/dispatcher.go: Dispatch).
func (j *judgement) invoke(inv *binding.Invocation) error {
	p := j.programs[inv.Policy.Name()]
	at := Violation{Source: Policy, Policy: p.Name(), Binding: inv.Binding}
	if inv.Err != nil {
		j.misconfigured(p, at, inv.Err)
		return nil
	}
	attributes, err := j.version(inv.Kind)
	if err != nil {
		j.misconfigured(p, at, fmt.Errorf("failed to convert object version: %w", err))
		return nil
	}
	if err := j.readNamespace(); err != nil {
		return err
	}
	var params runtime.Object
	if inv.Params != nil {
		at.Param = inv.Params.GetName()
		if ns := inv.Params.GetNamespace(); ns != "" {
			at.Param = ns + "/" + at.Param
		}
		params = withKind(inv.Params, p.object.Spec.ParamKind)
	}
	result := p.validator.Validate(j.ctx, inv.Resource, attributes, params, j.namespace, celconfig.RuntimeCELCostBudget, j.authorizer)
	if j.ctx.Err() != nil {
		return nil // an interruption may look like a violation; Judge returns it as an error
	}
	for _, d := range result.Decisions {
		if d.Action != validating.ActionDeny {
			continue
		}
		for _, action := range j.actions[inv.Binding] {
			f := at
			f.Action, f.Message, f.Reason = action, d.Message, cmp.Or(d.Reason, metav1.StatusReasonInvalid)
			j.add(f)
		}
	}
	for _, a := range result.AuditAnnotations {
		switch a.Action {
		case validating.AuditAnnotationActionPublish:
			j.annotate(Annotation{p.Name(), a.Key, a.Value})
		case validating.AuditAnnotationActionError:
			f := at
			f.Action, f.Message, f.Reason = admissionregistrationv1.Deny, a.Error, metav1.StatusReasonInvalid
			j.add(f)
		}
	}
	return nil
}

// misconfigured adds an error that prevented a policy from being evaluated. Then only its
// failurePolicy matters, not its actions.
func (j *judgement) misconfigured(p *Program, at Violation, err error) {
	if *p.object.Spec.FailurePolicy == admissionregistrationv1.Ignore {
		return
	}
	what := "binding"
	if at.Binding == "" {
		what = "policy"
	}
	at.Action, at.Reason = admissionregistrationv1.Deny, metav1.StatusReasonInvalid
	at.Message = fmt.Sprintf("failed to configure %s: %v", what, err)
	j.add(at)
}

func (j *judgement) add(v Violation) {
	if len(j.result.Violations) < maxViolations {
		j.result.Violations = append(j.result.Violations, v)
	}
}

// maxAnnotation is the length to which a server cuts an annotation's value.
const maxAnnotation = 10 * 1024

// annotate adds an annotation, unless a policy has published the same before. The
// server joins the values of one key by commas.
func (j *judgement) annotate(a Annotation) {
	a.Value = a.Value[:min(len(a.Value), maxAnnotation)]
	if len(j.result.Annotations) < maxViolations && !slices.Contains(j.result.Annotations, a) {
		j.result.Annotations = append(j.result.Annotations, a)
	}
}

func (j *judgement) newAttributes() admission.Attributes {
	r := j.req
	kind, resource := r.RequestKind, r.RequestResource
	if kind.Empty() {
		kind, resource = r.Kind, r.Resource
	}
	return admission.NewAttributesRecord(object(j.object), object(r.OldObject), kind, r.Namespace, r.Name, resource, r.SubResource,
		admission.Operation(r.Operation), options(r), r.DryRun, r.User())
}

// object returns u as an interface, as a nil interface if u is nil.
func object(u *unstructured.Unstructured) runtime.Object {
	if u == nil {
		return nil
	}
	return u
}

// options returns the options of a request, or the default options of a client.
func options(r *policy.Request) runtime.Object {
	if r.Options != nil {
		return &unstructured.Unstructured{Object: r.Options}
	}
	typed := map[admission.Operation]runtime.Object{
		admission.Create: &metav1.CreateOptions{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "CreateOptions"}},
		admission.Update: &metav1.UpdateOptions{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "UpdateOptions"}},
	}
	return typed[admission.Operation(r.Operation)]
}

// version returns the attributes with the objects in the version that a policy
// matched.
func (j *judgement) version(kind schema.GroupVersionKind) (*admission.VersionedAttributes, error) {
	if v := j.versions[kind]; v != nil {
		return v, nil
	}
	v := &admission.VersionedAttributes{Attributes: j.attributes, VersionedKind: kind}
	for _, o := range []struct {
		from *unstructured.Unstructured
		to   *admission.LazyObject
	}{{j.object, &v.VersionedObject}, {j.req.OldObject, &v.VersionedOldObject}} {
		if o.from == nil {
			continue
		}
		converted := o.from
		if converted.GroupVersionKind() != kind {
			var err error
			if converted, err = j.convert(converted, kind); err != nil {
				return nil, err
			}
		}
		o.to.Set(converted)
	}
	j.versions[kind] = v
	return v, nil
}

func (j *judgement) convert(u *unstructured.Unstructured, to schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	if j.sources.Convert == nil {
		return nil, errors.New("no conversion is known")
	}
	return j.sources.Convert(u, to)
}

// readNamespace reads the request's Namespace once. Requests for a Namespace have none.
func (j *judgement) readNamespace() error {
	r := j.req
	if j.namespace != nil || r.Namespace == "" || r.Kind == corev1.SchemeGroupVersion.WithKind("Namespace") {
		return nil
	}
	var err error
	j.namespace, err = j.typedNamespace(j.ctx, r.Namespace)
	return err
}

func (s *Set) typedNamespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	u, err := s.index.Namespace(ctx, name)
	if err != nil {
		return nil, err
	}
	ns := new(corev1.Namespace)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, ns); err != nil {
		return nil, fmt.Errorf("namespace %q: %w", name, err)
	}
	return ns, nil
}

// withKind returns a parameter with the kind that the policy names. Parameters of built-in kinds
// are stored without their kind, as in a server, but expressions can read it.
func withKind(params *unstructured.Unstructured, kind *admissionregistrationv1.ParamKind) *unstructured.Unstructured {
	if params.GetKind() != "" || kind == nil {
		return params
	}
	content := maps.Clone(params.Object)
	content["apiVersion"], content["kind"] = kind.APIVersion, kind.Kind
	return &unstructured.Unstructured{Object: content}
}
