package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/pkg/policy"
)

// denial is one error that denies the request.
type denial struct {
	message string
	reason  metav1.StatusReason // empty: the default, Forbidden
}

// denialMessage returns the server's text, which has two forms: double quotes for a policy
// alone, single ones if there is a binding (k8s.io/apiserver
// …/policy/generic/policy_dispatcher.go: PolicyError).
func denialMessage(policyName, binding string, err error) string {
	if binding == "" {
		return fmt.Sprintf("policy %q denied request: %s", policyName, err)
	}
	return fmt.Sprintf("policy '%s' with binding '%s' denied request: %s", policyName, binding, err)
}

// deniedStatus returns one status 403 with all errors; message and reason are those of the
// first error (spec §9.5).
func deniedStatus(req *policy.Request, object *unstructured.Unstructured, denials []denial) *metav1.Status {
	resource := req.RequestResource
	if resource.Empty() {
		resource = req.Resource
	}
	status := &metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    http.StatusForbidden,
		Reason:  metav1.StatusReasonForbidden,
		Message: denials[0].message,
		Details: &metav1.StatusDetails{
			Name:   resourceName(req.Name, req.Operation, object),
			Group:  resource.Group,
			Kind:   resource.Resource,
			Causes: make([]metav1.StatusCause, len(denials)),
		},
	}
	if denials[0].reason != "" {
		status.Reason = denials[0].reason
	}
	for i, d := range denials {
		status.Details.Causes[i].Message = d.message
	}
	return status
}

// resourceName returns the name that the server has in a refusal
// (k8s.io/apiserver/pkg/admission/errors.go: extractResourceName).
func resourceName(name string, operation admissionv1.Operation, object *unstructured.Unstructured) string {
	switch {
	case name != "":
		return name
	case object == nil:
		return "Unknown"
	}
	meta, _ := object.Object["metadata"].(map[string]any)
	if meta == nil && operation == admissionv1.Connect {
		// The options of a CONNECT have no metadata. A slash cannot be part of a name.
		return "Unknown/errorGettingName"
	}
	for _, field := range [...]string{"name", "generateName"} {
		if s, ok := meta[field].(string); ok && s != "" {
			return s
		}
	}
	return "Unknown"
}

// immediateStatus returns the status that ends a request whatever the failurePolicy is, or nil
// if err is an error of another kind.
func immediateStatus(err error) *metav1.Status {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return nil
	}
	return &status.ErrStatus
}

// interrupted returns the status of a request that has to end before all policies have run, or
// nil. Reasons are a refused charge of memory, the deadline and a client that is gone. The
// server has no texts of its own for these.
func interrupted(ctx context.Context, req *policy.Request) *metav1.Status {
	refused := req.Memory.Refused()
	switch {
	case refused != nil && refused.Reason == memory.TooLarge:
		return &apierrors.NewRequestEntityTooLargeError(refused.Error()).ErrStatus
	case refused != nil:
		return &apierrors.NewTooManyRequests(refused.Error(), 1).ErrStatus
	case ctx.Err() != nil:
		return &apierrors.NewTimeoutError("evaluation of mutating admission policies stopped: "+context.Cause(ctx).Error(), 0).ErrStatus
	}
	return nil
}
