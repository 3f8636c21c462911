// Package election has one process at a time work on a cluster: the one that holds a Lease.
// It is client-go's leader election, with calls that take a bounded time and an end of the
// work that does not wait for the API server.
package election

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

const (
	// Duration is how long after the last renewal other processes wait before they take over.
	Duration = 6 * time.Second
	// Deadline is how long after the last renewal the holder may work. It has the rest of
	// Duration to stop.
	Deadline    = 4 * time.Second
	retryPeriod = time.Second
	// CallTimeout bounds one request for the lease, so that a connection that hangs does not use
	// up the time for other attempts.
	CallTimeout = 1500 * time.Millisecond
)

// Lease is the object for which processes compete. It must not be copied after Hold was called.
type Lease struct {
	Kubernetes      kubernetes.Interface
	Namespace, Name string
	Identity        string // identifies this process
	Labels          map[string]string

	// Refused, if not nil, is called after a write that the server refused. It must not
	// block. A conflict with another process is no refusal.
	Refused func()
	// Holder, if not nil, is called with the identity of each new holder.
	Holder func(identity string)

	renewed atomic.Pointer[time.Time]
}

// Hold waits for the lease and calls work while this process holds it. The context of work
// ends with ctx, and at the latest Deadline after the last renewal. The lease is released
// after work has returned. Hold reports whether work was called; it was not if ctx was done
// before.
func (l *Lease) Hold(ctx context.Context, work func(context.Context)) (held bool, err error) {
	// The elector notices late that it cannot renew, because it first tries to release the
	// lease. So the context of work ends a fixed time after the last renewal.
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	fence := time.AfterFunc(time.Hour, cancel)
	defer fence.Stop()
	leading := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &lock{LeaseLock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name},
			Client:     l.Kubernetes.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.Identity},
			Labels:     l.Labels,
		}, renewed: func() {
			now := time.Now()
			l.renewed.Store(&now)
			fence.Reset(Deadline)
		}, refused: func() {
			if l.Refused != nil {
				l.Refused()
			}
		}},
		LeaseDuration: Duration,
		RenewDeadline: Deadline,
		RetryPeriod:   retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leading <- ctx },
			OnStoppedLeading: func() {},
			OnNewLeader:      l.Holder,
		},
		ReleaseOnCancel: true,
		Name:            l.Name,
	})
	if err != nil {
		return false, err
	}
	// The election continues after ctx is done, until work has returned.
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
		return false, nil
	case lease := <-leading:
		defer context.AfterFunc(lease, cancel)()
		work(working)
		return true, nil
	}
}

// Late reports whether the last renewal was so long ago that the context of work is about to end.
// A process that was suspended may continue to work before its timers run, and so act after
// another process has taken over.
func (l *Lease) Late() bool {
	renewed := l.renewed.Load()
	return renewed != nil && time.Since(*renewed) >= Deadline
}

// lock is a resource lock whose calls have a timeout. It calls renewed after a successful write,
// and refused after a write that the server refused.
type lock struct {
	*resourcelock.LeaseLock
	renewed, refused func()
	holder           string // as of the last Get; calls are sequential
}

func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	record, raw, err := l.LeaseLock.Get(ctx)
	if err == nil {
		l.holder = record.HolderIdentity
		correct(record)
	}
	return record, raw, err
}

// correct repairs values that mapd never writes into a lease, and with which no process could
// ever hold it: a duration of years, which the elector would wait for, and a count of transitions
// that would overflow. Times need no repair, because the elector counts from when it saw the
// lease change.
func correct(r *resourcelock.LeaderElectionRecord) {
	r.LeaseDurationSeconds = min(r.LeaseDurationSeconds, int(Duration/time.Second))
	if r.LeaderTransitions < 0 || r.LeaderTransitions >= math.MaxInt32 {
		r.LeaderTransitions = 0
	}
	r.PreferredHolder, r.Strategy = "", ""
}

func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	return l.wrote(l.LeaseLock.Create(ctx, r))
}

func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	// A process that was suspended may still believe that it holds the lease, and would release
	// the lease of another process (client-go v0.37.2 leaderelection: tryRelease).
	if r.HolderIdentity == "" && l.holder != l.Identity() {
		return nil
	}
	return l.wrote(l.LeaseLock.Update(ctx, r))
}

// wrote records the outcome of a write.
func (l *lock) wrote(err error) error {
	switch {
	case err == nil:
		l.renewed()
	case !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err):
		l.refused()
	}
	return err
}
