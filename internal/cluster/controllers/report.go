package controllers

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	eventsclient "k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"

	"github.com/mapd-project/mapd/internal/cluster/history"
	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/policy"
)

const (
	statusManager = "mapd-status"

	// statusRate is how many statuses are written per second: a cluster with 10,000 policies gets
	// them within minutes, without a noticeable load.
	statusRate  = 50
	statusBurst = 50
	// statusWorkers is how many statuses are written concurrently.
	statusWorkers = 4
	// statusRetryMost bounds the wait after a status was refused.
	statusRetryMost = 30 * time.Second

	// patience is how long after a policy its paramKind may appear without an event.
	patience = 10 * time.Second

	// eventRate and the burst bound the events per second. Further events are dropped; every
	// object has its status, too.
	eventRate  = 1
	eventBurst = 25
)

// key names an object whose status may have to be written.
type key struct {
	resource schema.GroupVersionResource
	name     string
}

// wanted is the desired status of an object.
type wanted struct {
	object *unstructured.Unstructured
	status status
}

// written is the status of an object after this replica's last write.
type written struct {
	uid     types.UID
	version string
	status  status
}

// reporter writes statuses during one term.
type reporter struct {
	w      *Writer
	events *events
	queue  workqueue.TypedRateLimitingInterface[key]
	rate   flowcontrol.RateLimiter

	mu      sync.Mutex
	wanted  map[key]wanted
	written map[key]written
	late    map[key]types.UID // policies that get an event unless their paramKind appears
	// granted has the counts that may be written until counts are added up again. Only the
	// goroutine of writeStatuses uses it.
	granted map[key]rolloutStatus
}

// writeStatuses keeps the statuses of policies and bindings up to date until ctx is done.
func (w *Writer) writeStatuses(ctx context.Context, out *events) {
	r := &reporter{
		w: w, events: out,
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](100*time.Millisecond, statusRetryMost)),
		rate:    flowcontrol.NewTokenBucketRateLimiter(statusRate, statusBurst),
		written: map[key]written{}, late: map[key]types.UID{},
	}
	published := w.reported
	var existing <-chan struct{}
	if w.o.Existing != nil {
		existing = w.o.Existing.changed
	}
	var workers sync.WaitGroup
	for range statusWorkers {
		workers.Go(func() {
			for r.next(ctx) {
			}
		})
	}
	defer workers.Wait()
	defer r.queue.ShutDown()
	for {
		if s := w.o.Store.Snapshot(); s != nil {
			r.update(s)
		}
		select {
		case <-ctx.Done():
			return
		case <-published:
		case <-existing:
		case <-w.counted:
			r.grant(w.o.Store.Snapshot(), *w.totals.Load())
		}
	}
}

// grant chooses the bindings whose new counts may be written, at most maxCountStatuses, so that
// counts that change all the time cause a bounded number of writes. The random order of map
// iteration makes the choice fair.
func (r *reporter) grant(s *store.Snapshot, totals map[history.Pair]*history.Counted) {
	r.granted = map[key]rolloutStatus{}
	if s == nil {
		return
	}
	bindings := make(map[history.Pair]*unstructured.Unstructured, len(s.Bindings))
	for _, b := range s.Bindings {
		bindings[history.Pair{Policy: b.PolicyName, Binding: b.Object.GetName()}] = b.Object
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, c := range totals {
		object := bindings[p]
		if object == nil {
			continue
		}
		k, now := key{api.OwnBindings, p.Binding}, rolloutOf(c)
		if before := r.before(k, object).Rollout; before == nil || !now.same(*before) {
			if r.granted[k] = now; len(r.granted) == maxCountStatuses {
				return
			}
		}
	}
}

// rollout returns the counts for the status of a binding: the granted ones, or those that the
// status already has. r.mu is held.
func (r *reporter) rollout(k key, b store.BindingState, policy api.Rollout) *rolloutStatus {
	now, ok := r.granted[k]
	if before := r.before(k, b.Object).Rollout; !ok && before != nil {
		now = *before
	}
	own, _ := api.RolloutFor(api.BindingKind, b.Object.GetAnnotations())
	now.Mode = policy.With(own).String()
	return &now
}

// update computes the desired statuses, and queues those that differ from the present ones.
func (r *reporter) update(s *store.Snapshot) {
	var all []*policy.Policy
	for _, p := range s.Policies {
		if p.Policy != nil {
			all = append(all, p.Policy)
		}
	}
	unroutable := webhookconfig.Unroutable(all)
	want := make(map[key]wanted, len(s.Policies)+len(s.Bindings))
	rollouts := make(map[string]api.Rollout, len(s.Policies))
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range s.Policies {
		of, _ := api.RolloutFor(api.PolicyKind, p.Object.GetAnnotations())
		of.Tripped = p.Breaker.Trip != nil
		rollouts[p.Object.GetName()] = of
		_, never := slices.BinarySearch(unroutable, p.Object.GetName())
		want[key{api.OwnPolicies, p.Object.GetName()}] = wanted{p.Object, policyStatus(p, never)}
	}
	for _, b := range s.Bindings {
		k, is := key{api.OwnBindings, b.Object.GetName()}, bindingStatus(b)
		if r.w.o.Counts != nil && b.PolicyFound {
			is.Rollout = r.rollout(k, b, rollouts[b.PolicyName])
		}
		if r.w.o.Existing != nil {
			if c := r.w.o.Existing.condition(b, r.before(k, b.Object), is); c != nil {
				is.Conditions = append(is.Conditions, *c)
			}
		}
		want[k] = wanted{b.Object, is}
	}
	r.wanted = want
	gone := func(k key) bool { _, ok := want[k]; return !ok }
	maps.DeleteFunc(r.written, func(k key, _ written) bool { return gone(k) })
	maps.DeleteFunc(r.late, func(k key, _ types.UID) bool { return gone(k) })
	add := func(k key) {
		if w := want[k]; !w.status.equal(r.before(k, w.object)) {
			r.queue.Add(k)
		}
	}
	for _, p := range s.Policies { // by name
		add(key{api.OwnPolicies, p.Object.GetName()})
	}
	for _, b := range s.Bindings {
		add(key{api.OwnBindings, b.Object.GetName()})
	}
}

// before returns the present status of an object: the one that the Store has seen or, if it is
// newer, the one that this replica has written. r.mu is held.
func (r *reporter) before(k key, u *unstructured.Unstructured) status {
	if w, ok := r.written[k]; ok && w.uid == u.GetUID() {
		last := &metav1.ObjectMeta{ResourceVersion: w.version}
		if watch.Older(u, last) {
			return w.status
		}
	}
	return statusOf(u)
}

// next writes one status. It returns false when the queue is shut down.
func (r *reporter) next(ctx context.Context) bool {
	k, quit := r.queue.Get()
	if quit {
		return false
	}
	defer r.queue.Done(k)
	if ctx.Err() != nil {
		return true
	}
	if err := r.write(ctx, k); err != nil && ctx.Err() == nil {
		if n := r.queue.NumRequeues(k); n == 0 || n == 8 {
			r.w.log.Warn("status not written", "resource", k.resource.Resource, "name", k.name, "error", err)
		}
		r.queue.AddRateLimited(k)
		return true
	}
	r.queue.Forget(k)
	return true
}

func (r *reporter) write(ctx context.Context, k key) error {
	if err := r.rate.Wait(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	want, ok := r.wanted[k]
	var before status
	if ok {
		before = r.before(k, want.object)
	}
	waited := ok && r.late[k] == want.object.GetUID()
	delete(r.late, k)
	r.mu.Unlock()
	if !ok {
		return nil
	}
	if want.status.equal(before) {
		if is := before.get(typeReady); waited && is != nil && is.Reason == reasonParamKindNotFound {
			r.warn(want.object, before)
		}
		return nil
	}
	s := want.status.withTransitionTimes(before, metav1.NewTime(time.Now().Truncate(time.Second)))
	object, err := s.object(want.object)
	if err != nil {
		return err
	}
	got, err := r.w.o.Dynamic.Resource(k.resource).ApplyStatus(ctx, k.name, object, metav1.ApplyOptions{FieldManager: statusManager, Force: true})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		// The object is gone, or another one has its name; a later snapshot has the change.
		return nil
	case err != nil:
		return err
	}
	r.mu.Lock()
	r.written[k] = written{got.GetUID(), got.GetResourceVersion(), s}
	r.mu.Unlock()
	r.announce(k, want.object, before, s)
	return nil
}

// announce makes an event for an object that has stopped working, or for which the reason has
// changed. A binding that is written before its policy gets no event, and a policy that is
// written before its paramKind gets one only if the paramKind does not appear within patience.
func (r *reporter) announce(k key, u *unstructured.Unstructured, before, now status) {
	if c := now.get(typeExisting); c != nil && r.w.o.Existing.wrong(u.GetUID()) {
		if old := before.get(typeExisting); old == nil || old.Reason != c.Reason {
			r.events.warn(corev1.ObjectReference{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Name: u.GetName(), UID: u.GetUID()}, c.Reason, "Fix", c.Message)
		}
	}
	was, is := before.get(typeReady), now.get(typeReady)
	switch {
	case is == nil || is.Status == metav1.ConditionTrue || is.Reason == reasonPolicyNotFound:
	case was != nil && was.Status == is.Status && was.Reason == is.Reason:
	case is.Reason == reasonParamKindNotFound:
		r.mu.Lock()
		r.late[k] = u.GetUID()
		r.mu.Unlock()
		r.queue.AddAfter(k, patience)
	default:
		r.warn(u, now)
	}
}

func (r *reporter) warn(u *unstructured.Unstructured, s status) {
	is := s.get(typeReady)
	message := is.Message
	if c := s.get(typeCompiled); c != nil && c.Status == metav1.ConditionFalse {
		message += ":\n" + c.Message
	}
	r.events.warn(corev1.ObjectReference{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Name: u.GetName(), UID: u.GetUID()}, is.Reason, "Check", message)
}

// events sends events about problems that an operator has to solve, at a bounded rate.
type events struct {
	broadcaster eventsclient.EventBroadcaster
	recorder    eventsclient.EventRecorder
	rate        flowcontrol.PassiveRateLimiter
	log         *slog.Logger
}

func newEvents(ctx context.Context, kube kubernetes.Interface, log *slog.Logger) (*events, error) {
	b := eventsclient.NewBroadcaster(&eventsclient.EventSinkImpl{Interface: kube.EventsV1()})
	if err := b.StartRecordingToSinkWithContext(ctx); err != nil {
		return nil, err
	}
	return &events{
		broadcaster: b,
		recorder:    b.NewRecorder(runtime.NewScheme(), "mapd.dev/mapd"),
		rate:        flowcontrol.NewTokenBucketPassiveRateLimiter(eventRate, eventBurst),
		log:         log,
	}, nil
}

func (e *events) warn(about corev1.ObjectReference, reason, action, message string) {
	if !e.rate.TryAccept() {
		e.log.Debug("event left out, there are too many", "kind", about.Kind, "name", about.Name, "reason", reason)
		return
	}
	e.recorder.Eventf(&about, nil, corev1.EventTypeWarning, reason, action, "%s", bounded(message))
}

func (e *events) stop() { e.broadcaster.Shutdown() }
