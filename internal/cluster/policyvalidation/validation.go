// Package policyvalidation answers one question: may this user write this policy or this binding?
//
// API servers check native policies when they store them. mapd's own kinds are custom resources,
// of which a server checks only the schema, so a validating webhook calls this package. Its
// answers have the server's text: the status of a refusal differs from that for a native policy
// in the name of the group only (spec §1.4; k8s.io/kubernetes pkg/registry/admissionregistration,
// mutatingadmissionpolicy and mutatingadmissionpolicybinding).
//
// The check includes permissions: a policy can copy the content of its parameters into other
// objects, so whoever makes it read them must be allowed to read them. Start reading at
// Validator.Validate.
package policyvalidation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/mapd-project/mapd/internal/lint"
	"github.com/mapd-project/mapd/internal/policyset/compile"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// Validator checks writes to mapd's own API group. All fields are required. It is safe for
// concurrent use.
type Validator struct {
	Env *cel.Env
	// Authorizer answers what the writer may read.
	Authorizer authorizer.Authorizer
	// Types has the resources of paramKinds, and the schemas for warnings.
	Types *openapi.Types
	// Policy reads the policy of the own group that a binding names. It should ask the API server
	// and not a cache: if a policy and its binding are applied together, the policy may be too
	// new for the cache.
	Policy func(ctx context.Context, name string) (*unstructured.Unstructured, error)
}

var _ webhook.Validator = (*Validator)(nil)

// Validate returns the reason why an object of the own group must not be stored, nil if it may
// be, and warnings about parts that certainly fail or have no effect. It allows requests for
// anything else, for the status, and deletions.
//
// An update that does not change the spec is allowed. An API server validates native policies
// again on every update, but it has validated them on creation as well. A policy of the own group
// may have been stored while mapd was unavailable. Its labels, owners and finalizers must still
// be editable, or it could not even be deleted.
func (v *Validator) Validate(ctx context.Context, req *policy.Request) (*metav1.Status, []string) {
	if req.Kind.Group != api.OwnGroup || req.SubResource != "" ||
		req.Operation != admissionv1.Create && req.Operation != admissionv1.Update ||
		req.Kind.Kind != api.PolicyKind && req.Kind.Kind != api.BindingKind {
		return nil, nil
	}
	if req.Object == nil {
		return status(apierrors.NewBadRequest("the review has no object")), nil
	}
	old := req.OldObject
	if req.Operation == admissionv1.Create {
		old = nil
	}
	if old != nil && tree.Equal(req.Object.Object["spec"], old.Object["spec"]) {
		return rolloutChange(req, old), nil
	}
	var warnings []string
	text, err := api.JSON(req.Object)
	switch {
	case err != nil:
	case req.Kind.Kind == api.PolicyKind:
		warnings, err = v.policy(ctx, req, text, old)
	default:
		warnings, err = v.binding(ctx, req, text)
	}
	var refusal *apierrors.StatusError
	var faults api.Faults
	switch {
	case err == nil:
		return nil, warnings
	case errors.As(err, &refusal):
		return status(refusal), nil
	case errors.As(err, &faults):
		return status(apierrors.NewInvalid(req.Kind.GroupKind(), req.Object.GetName(), faults.Form())), nil
	}
	// The text of a server that cannot decode a body.
	return status(apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v",
		req.Kind.Kind, req.Kind.Version, req.Kind.Kind, err))), nil
}

// rolloutChange returns the reason why the rollout annotations must not be stored. It returns nil
// if they are valid or unchanged.
func rolloutChange(req *policy.Request, old *unstructured.Unstructured) *metav1.Status {
	now, before := req.Object.GetAnnotations(), old.GetAnnotations()
	if !slices.ContainsFunc(api.RolloutAnnotations, func(key string) bool {
		value, has := now[key]
		was, had := before[key]
		return has && (!had || value != was)
	}) {
		return nil
	}
	if _, faults := api.RolloutFor(req.Kind.Kind, now); len(faults) > 0 {
		return status(apierrors.NewInvalid(req.Kind.GroupKind(), req.Object.GetName(), faults.Form()))
	}
	return nil
}

func status(err *apierrors.StatusError) *metav1.Status { return &err.ErrStatus }

// policy validates a policy. An error is a *StatusError, api.Faults, or means that
// the policy cannot be decoded.
func (v *Validator) policy(ctx context.Context, req *policy.Request, text []byte, old *unstructured.Unstructured) ([]string, error) {
	var before *admissionregistrationv1.MutatingAdmissionPolicy
	if old != nil {
		// If the old object cannot be decoded, nothing in the new one is excused by it.
		before, _ = policy.Decode(old)
	}
	p := compile.CheckPolicy(ctx, text, before, compile.New, v.Env)
	switch {
	case p.Object != nil && ctx.Err() != nil:
		// p.Err may be an interruption of the compiler.
		return nil, apierrors.NewTimeoutError("the policy's expressions could not be compiled in time", 0)
	case p.Err != nil:
		return nil, p.Err
	}
	kind := p.Object.Spec.ParamKind
	if kind != nil && (before == nil || before.Spec.ParamKind == nil || *before.Spec.ParamKind != *kind) {
		if err := v.mayReadKind(ctx, req, kind); err != nil {
			return nil, api.FormFaults(field.Forbidden(field.NewPath("spec", "paramKind"), err.Error()))
		}
	}
	return v.warnings(ctx, p.Object), nil
}

// warnings returns warnings that an API server does not have, because it checks no schema: the
// findings of mapd lint that are certain.
func (v *Validator) warnings(ctx context.Context, obj *admissionregistrationv1.MutatingAdmissionPolicy) []string {
	p, err := policy.Compile(obj, policy.Deps{Env: v.Env.Within(ctx), Types: v.Types})
	if err != nil {
		return nil // unchanged errors, see policy.ValidateUpdate, or no time left
	}
	return texts(lint.Certain(ctx, p, v.Env, v.Types))
}

// maxWarnings bounds the warnings of one answer: an API server passes on 4 KiB of warnings.
const maxWarnings = 20

func texts(warnings []policy.Warning) (out []string) {
	for i, w := range warnings {
		if i == maxWarnings {
			return append(out, fmt.Sprintf("and %d more", len(warnings)-i))
		}
		at := w.Field
		if w.Line > 0 {
			at = fmt.Sprintf("%s:%d:%d", at, w.Line, w.Column)
		}
		out = append(out, at+": "+w.Message)
	}
	return out
}

// binding validates a binding. The permission check for paramRef is repeated on every update, as
// in an API server, which compares addresses there and so always finds a change.
func (v *Validator) binding(ctx context.Context, req *policy.Request, text []byte) ([]string, error) {
	b := compile.NewBinding(text, compile.New)
	faults := api.FaultsOf(b.Err)
	if b.Object == nil {
		return nil, b.Err
	}
	if req.Operation == admissionv1.Update {
		// Names cannot change, and reserved names are refused for new objects only.
		faults = faults[:len(faults)-len(api.ValidateReservedName(b.Object.Name))]
	}
	if len(faults) == 0 && b.Object.Spec.ParamRef != nil {
		if err := v.mayReadParams(ctx, req, &b.Object.Spec); err != nil {
			faults = api.FormFaults(field.Forbidden(field.NewPath("spec", "paramRef"), err.Error()))
		}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	return texts(lint.CertainOfBinding(ctx, b.Object, v.Types)), nil
}
