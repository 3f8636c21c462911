// Package policyvalidation answers one question: may this user write this policy or
// this binding?
//
// Native policies are checked by the API server that stores them. mapd's own
// kinds are custom resources, of which a server knows no more than a schema, so
// a validating webhook asks here. The answer is the server's, in its words: the
// status of a refusal differs from a native one in the group's name only (spec
// §1.4; k8s.io/kubernetes pkg/registry/admissionregistration,
// mutatingadmissionpolicy and mutatingadmissionpolicybinding).
//
// What is answered here is a matter of permissions, too: a policy puts what its
// parameters say into other objects, so whoever makes it read them must be
// allowed to read them.
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

// Validator checks what is written into mapd's own API group. All fields are
// required. It is safe for concurrent use.
type Validator struct {
	Env *cel.Env
	// Authorizer says what writers may read.
	Authorizer authorizer.Authorizer
	// Types say which resource a paramKind is, and what is sure to fail in a
	// policy.
	Types *openapi.Types
	// Policy reads a policy of the own group, which a binding names. It should
	// ask the API server: of a policy and a binding that are applied together
	// the one may be too new for a cache as the other comes.
	Policy func(ctx context.Context, name string) (*unstructured.Unstructured, error)
}

var _ webhook.Validator = (*Validator)(nil)

// Validate returns why an object of the own group may not be stored, nil if it
// may, and warnings about what is sure to fail, or to have no effect. Requests about anything else, about the status, and deletions are
// allowed.
//
// An update that leaves the spec as it is is allowed. A native server checks it
// anew, but there it was checked when it was stored. Here it may have come while
// nobody validated, and its labels, owners and finalizers must be as easy to
// change as anybody else's, or it could not even be deleted.
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
	// In the words of a server that cannot decode a body.
	return status(apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v",
		req.Kind.Kind, req.Kind.Version, req.Kind.Kind, err))), nil
}

// rolloutChange returns why annotations may not be stored that say how much of an object
// counts, nil if they may or are as before.
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
		// What cannot be decoded gives no room to what comes in its place.
		before, _ = policy.Decode(old)
	}
	p := compile.CheckPolicy(ctx, text, before, compile.New, v.Env)
	switch {
	case p.Object != nil && ctx.Err() != nil:
		// What is in p.Err may be that it was not compiled to its end.
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

// warnings are what a native server does not say, because it looks at no schema: what mapd
// lint finds and is certain of.
func (v *Validator) warnings(ctx context.Context, obj *admissionregistrationv1.MutatingAdmissionPolicy) []string {
	p, err := policy.Compile(obj, policy.Deps{Env: v.Env.Within(ctx), Types: v.Types})
	if err != nil {
		return nil // kept from before, see policy.ValidateUpdate; or there is no time left
	}
	return texts(lint.Certain(ctx, p, v.Env, v.Types))
}

// maxWarnings bounds the warnings of one answer: a server cuts them off at 4 KiB.
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

// binding validates a binding. The server looks at its paramRef again with every
// update, the old one being equal or not: it compares addresses.
func (v *Validator) binding(ctx context.Context, req *policy.Request, text []byte) ([]string, error) {
	b := compile.NewBinding(text, compile.New)
	faults := api.FaultsOf(b.Err)
	if b.Object == nil {
		return nil, b.Err
	}
	if req.Operation == admissionv1.Update {
		// A name does not change; the server refuses reserved ones to newcomers.
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
