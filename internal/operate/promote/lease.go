package promote

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// LeaseName is the Lease that a Promoter holds while it moves policies.
const LeaseName = "mapd-promotion"

// A promoter that was killed holds the lease for leaseDuration.
const leaseDuration, renewDeadline, retryPeriod = 6 * time.Second, 4 * time.Second, time.Second

// Alone calls work while no other Promoter works on the cluster, and cancels its context
// when that can no longer be said.
func (p *Promoter) Alone(ctx context.Context, namespace string, work func(context.Context) error) error {
	lost := errors.New("the lease " + namespace + "/" + LeaseName + " is lost: another mapd promote may be at work")
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: LeaseName}, Client: p.Kubernetes.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: p.ID},
	}
	// What keeps the lease from being had is said at once, and not retried for ever.
	if _, _, err := lock.Get(ctx); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	electing, stop := context.WithCancel(ctx)
	defer stop()
	held := make(chan context.Context, 1)
	var told atomic.Bool
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod, ReleaseOnCancel: true, Name: LeaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { held <- ctx },
			OnStoppedLeading: func() {},
			OnNewLeader: func(id string) {
				if id != p.ID {
					if !told.Swap(true) {
						p.Progress("%s moves policies, or was killed doing so; waiting up to %v for it", id, 5*leaseDuration)
					}
				}
			},
		},
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(electing)
	}()
	defer func() {
		stop()
		<-ended // so that the lease is released
	}()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-ended:
		return lost
	case <-time.After(5 * leaseDuration):
		if !told.Load() {
			return fmt.Errorf("the lease %s/%s cannot be written: mapd promote needs that namespace, and the verbs get, create and update for its leases", namespace, LeaseName)
		}
		return fmt.Errorf("another mapd promote is at work (the lease %s/%s); run this again when it has ended", namespace, LeaseName)
	case leading := <-held:
		err := work(leading)
		if err != nil && leading.Err() != nil && ctx.Err() == nil {
			return lost // which err came of
		}
		return err
	}
}
