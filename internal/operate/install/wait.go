package install

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// WaitOptions say what to wait for.
type WaitOptions struct {
	Dynamic  dynamic.Interface
	Objects  []*unstructured.Unstructured // the Deployment is taken from them
	Progress func(string)                 // called with what is waited for, whenever that changes
}

// Wait returns when the Deployment is rolled out and the API server reaches mapd.
//
// The probe decides: where nothing has ever looked after the Deployment (mapd
// runs elsewhere, or there is no controller manager) it is enough.
func Wait(ctx context.Context, o WaitOptions) error {
	var deployment *ref
	if obj := find(o.Objects, "Deployment"); obj != nil {
		r := refOf(obj)
		deployment = &r
	}
	return poll(ctx, o.Progress, func() (string, error) {
		rollout := ""
		if deployment != nil {
			obj, err := deployment.client(o.Dynamic).Get(ctx, deployment.name, metav1.GetOptions{})
			switch {
			case err == nil:
				rollout = Rollout(obj)
			case !apierrors.IsForbidden(err) && !transient(err):
				return "", fmt.Errorf("%s: %w", deployment, err)
			}
		}
		err := Probe(ctx, o.Dynamic)
		var pe *ProbeError
		switch {
		case err == nil && rollout == "":
			return "", nil
		case err == nil:
			return deployment.String() + ": " + rollout, nil
		case errors.As(err, &pe) && pe.permanent():
			return "", err
		case rollout != "":
			return fmt.Sprintf("%s: %s; probe: %s", deployment, rollout, err), err
		}
		return "probe: " + err.Error(), err
	})
}

// Rollout tells what a Deployment still lacks; empty if nothing, or if nothing
// looks after it.
func Rollout(deployment *unstructured.Unstructured) string {
	status := func(field string) int64 {
		n, _, _ := unstructured.NestedInt64(deployment.Object, "status", field)
		return n
	}
	want, found, _ := unstructured.NestedInt64(deployment.Object, "spec", "replicas")
	if !found {
		want = 1
	}
	seen := status("observedGeneration")
	switch {
	case seen == 0:
		return ""
	case seen < deployment.GetGeneration():
		return "its change was not seen yet"
	case status("updatedReplicas") < want:
		return fmt.Sprintf("%d of %d replicas updated%s", status("updatedReplicas"), want, rolloutProblem(deployment))
	case status("replicas") > status("updatedReplicas"):
		return fmt.Sprintf("%d old replicas still there", status("replicas")-status("updatedReplicas"))
	case status("availableReplicas") < want:
		return fmt.Sprintf("%d of %d replicas available%s", status("availableReplicas"), want, rolloutProblem(deployment))
	}
	return ""
}

// rolloutProblem returns why a rollout makes no progress, as far as a Deployment knows.
func rolloutProblem(deployment *unstructured.Unstructured) string {
	for _, kind := range []string{"ReplicaFailure", "Progressing"} {
		c := condition(deployment, kind)
		if c.Message != "" && (kind == "ReplicaFailure") == (c.Status == metav1.ConditionTrue) {
			return " (" + c.Message + ")"
		}
	}
	return ""
}

// transient tells errors that may be gone at the next try.
func transient(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsServiceUnavailable(err) || apierrors.ReasonForError(err) == metav1.StatusReasonUnknown
}
