package controllers

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/breaker"
	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/pkg/api"
)

const (
	// breakerManager is the field manager of status.breaker, on all replicas.
	breakerManager = "mapd-breaker"
	// tripRetryMost bounds the wait after a Trip could not be written.
	tripRetryMost = 10 * time.Second
)

// storeTrips writes this replica's own Trips into the status of policies until ctx is done. It
// needs no lease: every replica counts for itself, and the one whose breaker trips may not hold
// the lease. Replicas that trip at the same time write the same.
func (w *Writer) storeTrips(ctx context.Context) {
	w.eachPolicy(ctx, w.tripped, "a tripped breaker is not written, so that other replicas do not follow and a restart forgets it", w.storeTrip)
}

// clearTrips removes Trips that are void, because the policy was edited, from the status of
// policies until ctx is done.
func (w *Writer) clearTrips(ctx context.Context) {
	w.eachPolicy(ctx, w.voided, "the trip of a breaker before an edit stays in the status, without effect", w.clearTrip)
}

// eachPolicy calls write for every policy, after each snapshot and again after a failure, until
// ctx is done. problem is the log message of a failure.
func (w *Writer) eachPolicy(ctx context.Context, published <-chan struct{}, problem string, write func(context.Context, *store.PolicyState) error) {
	var tries attempts
	for {
		var failed error
		var of string // the policy
		if s := w.o.Store.Snapshot(); s != nil {
			for i := range s.Policies {
				calling, cancel := context.WithTimeout(ctx, callLimit)
				err := write(calling, &s.Policies[i])
				cancel()
				// The policy is gone or has changed; a later snapshot has the change.
				if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
					failed, of = err, s.Policies[i].Object.GetName()
				}
			}
		}
		pause, news := tries.ended(failed, tripRetryMost)
		if failed == nil {
			pause = time.Hour // the next snapshot comes earlier
		}
		if news && ctx.Err() == nil {
			w.log.Error(problem, "policy", of, "error", failed)
		}
		if !watch.Sleep(ctx, pause, published, nil) {
			return
		}
	}
}

// storeTrip writes this replica's own Trip of a policy, if there is one.
func (w *Writer) storeTrip(ctx context.Context, p *store.PolicyState) error {
	if p.Breaker.Own == nil {
		return nil
	}
	trip := *p.Breaker.Own
	trip.Replica, _, _ = strings.Cut(w.o.Identity, "_")
	object := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"breaker": trip.Object()}}}
	object.SetAPIVersion(p.Object.GetAPIVersion())
	object.SetKind(p.Object.GetKind())
	object.SetName(p.Object.GetName())
	object.SetUID(p.Object.GetUID())
	got, err := w.o.Dynamic.Resource(api.OwnPolicies).ApplyStatus(ctx, p.Object.GetName(), object, metav1.ApplyOptions{FieldManager: breakerManager, Force: true})
	if err != nil {
		return err
	}
	p.Breaker.Written(got.GetResourceVersion())
	return nil
}

// clearTrip removes a void Trip from the status of a policy, unless the status has changed.
func (w *Writer) clearTrip(ctx context.Context, p *store.PolicyState) error {
	if !p.Breaker.Void {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": p.Object.GetResourceVersion()}, "status": map[string]any{"breaker": nil},
	})
	if err != nil {
		return err
	}
	_, err = w.o.Dynamic.Resource(api.OwnPolicies).Patch(ctx, p.Object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: breakerManager}, "status")
	return err
}

// trippedMessage returns the reason why a policy whose breaker has tripped is not ready.
func trippedMessage(t *breaker.Trip) string {
	return "the breaker has tripped, so the policy is evaluated and not enforced: " + t.Reason + "; change the policy, or delete status.breaker, to enforce it again"
}
