package controllers

import (
	"context"
	"math"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	// leaseDuration is how long after the last renewal others wait before they
	// take over.
	leaseDuration = 6 * time.Second
	// renewDeadline is how long the holder tries to renew before it stops
	// writing; it has until leaseDuration to do so.
	renewDeadline = 4 * time.Second
	retryPeriod   = time.Second
	// callTimeout bounds one look at the lease, so that a connection that hangs
	// does not use up the time for others.
	callTimeout = 1500 * time.Millisecond
)

// lead runs work whenever this replica holds the lease, until ctx is done. The
// context of work ends with the lease, and the lease is released only after work has
// returned.
func (w *Writer) lead(ctx context.Context, work func(context.Context)) error {
	for ctx.Err() == nil {
		if err := w.holdLease(ctx, work); err != nil {
			return err
		}
	}
	return nil
}

// holdLease waits for the lease and runs work while this replica holds it.
func (w *Writer) holdLease(ctx context.Context, work func(context.Context)) error {
	// The elector notices late that it cannot renew, because it first tries to release the
	// lease. So the context of work ends a fixed time after the last renewal.
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	fence := time.AfterFunc(time.Hour, cancel)
	defer fence.Stop()
	held := make(chan context.Context, 1)
	var exempting sync.WaitGroup
	defer exempting.Wait()
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &lock{LeaseLock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: w.o.Namespace, Name: w.o.Lease},
			Client:     w.o.Kubernetes.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: w.o.Identity},
			Labels:     labels(),
		}, renewed: func() {
			now := time.Now()
			w.renewed.Store(&now)
			fence.Reset(renewDeadline)
		}, refused: func() {
			if w.exempting.CompareAndSwap(false, true) {
				exempting.Go(func() {
					defer w.exempting.Store(false)
					w.exemptOwnRequests(ctx)
				})
			}
		}},
		LeaseDuration: leaseDuration,
		RenewDeadline: renewDeadline,
		RetryPeriod:   retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { held <- ctx },
			OnStoppedLeading: func() {},
		},
		ReleaseOnCancel: true,
		Name:            w.o.Lease,
	})
	if err != nil {
		return err
	}
	// The election outlives ctx until work has returned.
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	over := make(chan struct{})
	go func() {
		defer close(over)
		elector.Run(electing)
	}()
	defer func() {
		stop()
		<-over
	}()
	select {
	case <-ctx.Done():
		return nil
	case <-over: // cannot be before it was stopped
		return nil
	case lease := <-held:
		defer context.AfterFunc(lease, cancel)()
		w.log.Info("this replica holds the lease and writes")
		work(working)
		if ctx.Err() == nil {
			w.log.Warn("the lease is lost; another replica writes now, or this one later")
		}
	}
	return nil
}

// late reports whether the lease was renewed so long ago that ctx of work is about to end.
// A process that was stopped for a while may go on writing before its timers run, and
// would write what was right before another replica took over.
func (w *Writer) late() bool {
	renewed := w.renewed.Load()
	return renewed != nil && time.Since(*renewed) >= renewDeadline
}

// lock is a lease whose calls take a bounded time. It calls renewed after a write that
// succeeded, and refused after one that the server refused.
type lock struct {
	*resourcelock.LeaseLock
	renewed, refused func()
	holder           string // as of the last Get; calls come one after the other
}

func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	record, raw, err := l.LeaseLock.Get(ctx)
	if err == nil {
		l.holder = record.HolderIdentity
		correct(record)
	}
	return record, raw, err
}

// correct puts right what no replica of mapd writes into a lease, and what would keep
// all of them from ever holding it: a duration of years, which the elector would
// wait out, and a count of transitions that the next one would overflow. Times do not
// matter, because the elector counts from when it saw the lease change.
func correct(r *resourcelock.LeaderElectionRecord) {
	r.LeaseDurationSeconds = min(r.LeaseDurationSeconds, int(leaseDuration/time.Second))
	if r.LeaderTransitions < 0 || r.LeaderTransitions >= math.MaxInt32 {
		r.LeaderTransitions = 0
	}
	r.PreferredHolder, r.Strategy = "", ""
}

func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return l.wrote(l.LeaseLock.Create(ctx, r))
}

func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// A replica that was stopped for a while still believes that it holds the lease, and
	// would release that of another (client-go v0.37.2 leaderelection: tryRelease).
	if r.HolderIdentity == "" && l.holder != l.Identity() {
		return nil
	}
	return l.wrote(l.LeaseLock.Update(ctx, r))
}

// wrote reports the outcome of a write. A conflict with another replica is no refusal.
func (l *lock) wrote(err error) error {
	switch {
	case err == nil:
		l.renewed()
	case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err):
		l.refused()
	}
	return err
}
