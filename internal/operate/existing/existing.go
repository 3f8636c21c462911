package existing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/api"
)

// Options configure a Keeper. All but Windows, GitOps, ReplacePods, Publish and Log are required.
type Options struct {
	Kubernetes kubernetes.Interface
	// Config connects to the cluster; the Keeper sets its rate limit.
	Config *rest.Config
	// Namespace is mapd's, where the undo records are.
	Namespace string
	audit.Asking
	// Rate bounds the objects that are written in a minute. If there are Windows, objects are
	// written in these only.
	Rate    float64
	Windows []Window
	// GitOps allows writing objects that are applied from Git, and ReplacePods allows writes that
	// replace Pods.
	GitOps, ReplacePods bool
	// Patience is how long the rollout of a workload may make no progress.
	Patience time.Duration
	// Bindings returns the present bindings with the annotation.
	Bindings func() []Binding
	// Set returns the policies, restricted to bindings for which keep returns true; nil while
	// they are not known.
	Set func(keep func(binding string) bool) *audit.Set
	// Publish is called with the state of each binding, at most every few seconds, and with nil
	// when this replica no longer knows the states.
	Publish func([]State)
	Log     *slog.Logger // nil: no log
}

// Binding is a binding with the annotation.
type Binding struct {
	Name, Policy string
	UID          types.UID
	Existing     api.Existing
	// Enforced says that the policy is enforced by the binding.
	Enforced bool
	// Stopped is the message in the binding's status that writing was stopped; "" if there is
	// none.
	Stopped string
}

// AggregateLabel marks ClusterRoles that give mapd the rights to write objects.
const AggregateLabel = "mapd.dev/aggregate-to-existing"

// Reasons of a State.
const (
	// Reported: objects are counted and not written.
	Reported = "Reported"
	// InLine: no object would change.
	InLine = "InLine"
	// Fixing: objects are being written, or wait to be.
	Fixing = "Fixing"
	// Closed: objects wait until a window begins.
	Closed = "Closed"
	// Left: all objects that may be written are written.
	Left = "LeftAlone"
	// Fight: a field was changed back, so nothing more is written.
	Fight = "ChangedBack"
	// NotAllowed: undo records or objects cannot be written.
	NotAllowed = "NotAllowed"
	// NotAudited: the server has no audits, so nobody looks for objects.
	NotAudited = "NotAudited"
)

// State is the state of a binding.
type State struct {
	Policy, Binding string
	UID             types.UID
	Reason, Message string
	// Found is the number of objects that the last audit found. Of these, Written have been
	// written since, Alone are left as they are, and Waiting may be written, now or after the next
	// audit.
	Found, Written, Alone, Waiting int
}

// Wrong reports whether nothing more is written until somebody acts.
func (s *State) Wrong() bool { return s.Reason == Fight || s.Reason == NotAllowed }

const (
	// maxQueue bounds the objects that wait to be written after an audit. The next audit finds
	// the others.
	maxQueue = 20_000
	// publishEvery is the minimum time between two calls of Publish while objects are written.
	// refreshEvery is the maximum age of the policies and bindings that are used.
	publishEvery = 15 * time.Second
	refreshEvery = 2 * time.Second
	// requests is how many requests one object takes at most, if nobody changes it meanwhile: to
	// read it, to try two patches, to note it and to write it.
	requests = 5
	// leastQPS allows reading objects that need no write any more, even if Rate is low.
	leastQPS = 5
	// retryFirst and retryMost bound how long to wait for an API server that is away.
	retryFirst, retryMost = time.Second, 30 * time.Second
)

// Keeper implements audit.Existing for mapd serve.
type Keeper struct {
	o   Options
	log *slog.Logger

	bindings  map[string]*account // by name, as of the last audit
	queue     []candidate
	templates map[types.UID]bool // controllers of Pods in queue
	dropped   int                // objects that queue had no place for

	records   *records // nil before the first of a term
	past      *pastWrites
	published time.Time

	mu sync.Mutex // guards stopped
	// stopped has the messages of fights that this replica has seen, by the binding's UID.
	stopped map[types.UID]string
}

// account has the counts of a binding.
type account struct {
	Binding
	found, written, waiting int
	alone                   map[string]int // by reason
	problem                 string         // the reason why nothing can be written
}

// candidate is an object to write. It is evaluated again before it is written.
type candidate struct {
	of              *audit.Resource
	namespace, name string
	// controller is set for a Pod whose controller's template is written instead; nil for other
	// objects.
	controller *metav1.OwnerReference
	bindings   []string
}

// New returns a Keeper.
func New(o Options) *Keeper {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Keeper{o: o, log: log, stopped: map[types.UID]string{}}
}

// Begin implements audit.Existing.
func (k *Keeper) Begin() {
	k.bindings, k.queue, k.templates, k.dropped = map[string]*account{}, nil, map[types.UID]bool{}, 0
	for _, b := range k.o.Bindings() {
		k.bindings[b.Name] = &account{Binding: b, alone: map[string]int{}}
	}
}

// Add implements audit.Existing.
func (k *Keeper) Add(r *audit.Result) {
	if len(k.bindings) == 0 || r.Denied != "" || r.Error != "" || len(r.Changes) == 0 {
		return
	}
	var fixing []string
	for _, a := range r.By {
		b := k.bindings[a.Binding]
		if b == nil || a.Stage != "" || a.Mode != "" || len(a.Fields) == 0 || a.Policy != b.Policy {
			continue
		}
		b.found++
		if k.fixes(&b.Binding) {
			fixing = append(fixing, b.Name)
		}
	}
	if len(fixing) == 0 {
		return
	}
	c := candidate{of: k.resource(r), namespace: r.Namespace, name: r.Name, bindings: fixing}
	if r.Kind == "Pod" && c.of.GVR.Group == "" && r.Controller != nil {
		if k.templates[r.Controller.UID] {
			k.leave(fixing, ofTemplate)
			return
		}
		c.controller = r.Controller
	}
	for _, name := range fixing {
		k.bindings[name].waiting++
	}
	if len(k.queue) == maxQueue {
		k.dropped++
		return
	}
	if c.controller != nil {
		k.templates[r.Controller.UID] = true
	}
	k.queue = append(k.queue, c)
}

// resource returns the resource of a result, shared by all candidates of its kind.
func (k *Keeper) resource(r *audit.Result) *audit.Resource {
	if n := len(k.queue); n > 0 && k.queue[n-1].of.GVR == r.Resource.GVR {
		return k.queue[n-1].of
	}
	of := r.Resource
	return &of
}

// leave counts an object that is not written.
func (k *Keeper) leave(bindings []string, why string) {
	for _, name := range bindings {
		if b := k.bindings[name]; b != nil {
			b.alone[why]++
		}
	}
}

// Reasons why objects are not written, as statuses count them.
const (
	ofGit        = "applied from Git"
	ofController = "made by a controller"
	ofTemplate   = "Pods of a template"
	ofHour       = "whose owner had a change within the hour"
	ofFight      = "changed back"
	ofPods       = "that would replace Pods"
	ofOthers     = "with a field of another manager"
	ofUnstable   = "that the policies would change again and again"
	ofFailure    = "that could not be written"
	ofRights     = "that mapd may not write"
)

// fixes reports whether objects may be written for a binding.
func (k *Keeper) fixes(b *Binding) bool {
	return b.Existing == api.Fixed && b.Enforced && k.stop(b) == ""
}

// stop returns the reason why a binding was stopped, "" if it was not. Either this replica has
// stopped it, or another one, which has said so in the binding's status.
func (k *Keeper) stop(b *Binding) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if why := k.stopped[b.UID]; why != "" {
		return why
	}
	if b.Existing == api.Fixed {
		return b.Stopped
	}
	return ""
}

// refresh updates the bindings. A fight is over when the binding's annotation is no longer fix,
// because then somebody has noticed it.
func (k *Keeper) refresh() {
	now := map[string]Binding{}
	fixed := map[types.UID]bool{}
	for _, b := range k.o.Bindings() {
		now[b.Name] = b
		fixed[b.UID] = b.Existing == api.Fixed
	}
	k.mu.Lock()
	maps.DeleteFunc(k.stopped, func(uid types.UID, _ string) bool { return !fixed[uid] })
	k.mu.Unlock()
	for name, a := range k.bindings {
		b, ok := now[name]
		if !ok || b.UID != a.UID {
			delete(k.bindings, name)
			continue
		}
		a.Binding = b
	}
}

// Fix implements audit.Existing.
func (k *Keeper) Fix(ctx context.Context, until time.Time) {
	if k.dropped > 0 {
		k.log.Info("more objects would change than are written after one audit; the next audit finds the others", "left", k.dropped)
	}
	k.publish(true)
	if len(k.queue) > 0 {
		t := &turn{Keeper: k, until: until}
		if err := t.run(ctx); err != nil && ctx.Err() == nil {
			k.log.Error("objects that exist cannot be brought in line with the policies", "error", err)
		}
		k.queue, k.templates = nil, nil // the next audit finds what still waits
		k.publish(true)
	}
	// Somebody may lift a stop before the next audit, and the states have to show that.
	for ctx.Err() == nil && time.Now().Before(until) && len(k.bindings) > 0 {
		k.refresh()
		k.publish(true)
		if audit.Sleep(ctx, min(refreshEvery*5, time.Until(until))) != nil {
			return
		}
	}
}

// End implements audit.Existing.
func (k *Keeper) End() {
	k.bindings, k.queue, k.records, k.past = nil, nil, nil, nil
	k.mu.Lock()
	clear(k.stopped) // the statuses of bindings have these
	k.mu.Unlock()
	if k.o.Publish != nil {
		k.o.Publish(nil)
	}
}

// publish publishes the states, unless that was done less than publishEvery ago and now is false.
func (k *Keeper) publish(now bool) {
	if k.o.Publish == nil || !now && time.Since(k.published) < publishEvery {
		return
	}
	k.published = time.Now()
	out := make([]State, 0, len(k.bindings))
	for _, name := range slices.Sorted(maps.Keys(k.bindings)) {
		out = append(out, k.state(k.bindings[name]))
	}
	k.o.Publish(out)
}

// state returns the State of a binding.
func (k *Keeper) state(a *account) State {
	s := State{Policy: a.Policy, Binding: a.Name, UID: a.UID, Found: a.found, Written: a.written}
	if k.fixes(&a.Binding) {
		s.Waiting = a.waiting
	}
	var reasons []string
	for _, why := range slices.Sorted(maps.Keys(a.alone)) {
		s.Alone += a.alone[why]
		reasons = append(reasons, fmt.Sprintf("%d %s", a.alone[why], why))
	}
	found := words.Count(a.found, "object", "objects") + " would change"
	done := fmt.Sprintf("%s: %d written, %d left alone", found, a.written, s.Alone)
	if len(reasons) > 0 {
		done += " (" + strings.Join(reasons, ", ") + ")"
	}
	stopped := k.stop(&a.Binding)
	switch {
	case stopped != "":
		s.Reason, s.Message = Fight, stopped
	case a.Existing != api.Fixed:
		s.Reason, s.Message = Reported, found+"; nothing is written"
		if a.found == 0 {
			s.Reason, s.Message = InLine, "no object would change"
		}
	case !a.Enforced:
		s.Reason, s.Message = Reported, "nothing is written: the policy is not enforced by this binding"
	case a.problem != "":
		s.Reason, s.Message = NotAllowed, a.problem
	case a.found == 0:
		s.Reason, s.Message = InLine, "no object would change"
	case s.Waiting > 0 && !open(k.o.Windows, time.Now()):
		s.Reason, s.Message = Closed, done+"; the others wait until a window begins"
	case s.Waiting > 0:
		s.Reason, s.Message = Fixing, done
	default:
		s.Reason, s.Message = Left, done
		if s.Alone == 0 {
			s.Reason = InLine
		}
	}
	return s
}

// turn is the state of writing after one audit.
type turn struct {
	*Keeper
	until time.Time

	cluster *audit.Cluster
	fixer   *audit.Fixer
	fresh   time.Time // when the policies and bindings were last updated
	began   time.Time // when the last object was begun
	next    time.Time // when the next object may be written
	why     string    // the last reason that Leave has returned
	undo    *audit.Undo
}

// errOver is the error when the time of a turn is over.
var errOver = errors.New("the time is over")

func (t *turn) run(ctx context.Context) error {
	config := rest.CopyConfig(t.o.Config)
	config.RateLimiter = nil
	config.QPS = float32(max(leastQPS, math.Ceil(t.o.Rate/60*requests)))
	config.Burst = int(config.QPS)
	err := t.patiently(ctx, func() (err error) {
		if t.cluster, err = audit.Connect(ctx, config); err != nil || t.records != nil {
			return err
		}
		// Other replicas may have written objects before this one got the Lease.
		m, now := newPastWrites(), time.Now()
		r, err := openRecords(ctx, t.o.Kubernetes, t.o.Namespace, func(u *audit.Undo) {
			if at, err := time.Parse(time.RFC3339, u.At); err == nil && now.Sub(at) < recordsKept {
				m.add(u, at)
			}
		})
		if err != nil {
			return &recordError{err}
		}
		t.Keeper.records, t.Keeper.past = r, m
		return nil
	})
	if err != nil {
		return t.giveUp(err)
	}
	t.fixer = &audit.Fixer{
		Writer: audit.Writer{Cluster: t.cluster, ReplacePods: t.o.ReplacePods, Patience: t.o.Patience}, Asking: t.o.Asking, Twice: true, Leave: t.leaveAlone,
		Before: func(u *audit.Undo) error {
			t.undo = u
			return t.records.add(ctx, u)
		},
		Refused: func() error { return t.records.drop(ctx) },
	}
	defer func() {
		// The last record has to say that the object was stored, even if the Lease is lost.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), retryFirst)
		defer cancel()
		if err := t.records.flush(ctx); err != nil {
			t.log.Warn("the last undo record is stored without the note that the object was written", "error", err)
		}
	}()
	for i := range t.queue {
		c := &t.queue[i]
		if err := t.ready(ctx); err != nil {
			return over(err)
		}
		if !slices.ContainsFunc(c.bindings, func(name string) bool { return t.bindings[name] != nil && t.fixes(&t.bindings[name].Binding) }) {
			t.forget(c)
			continue
		}
		if err := t.patiently(ctx, func() error { return t.one(ctx, c) }); err != nil {
			return t.giveUp(err)
		}
		t.publish(false)
	}
	return nil
}

func over(err error) error {
	if errors.Is(err, errOver) {
		return nil
	}
	return err
}

// giveUp reports an error in the statuses of bindings, if somebody has to act on it.
func (t *turn) giveUp(err error) error {
	if why := cause(err); why != "" {
		for _, a := range t.bindings {
			if a.Existing == api.Fixed {
				a.problem = why
			}
		}
	}
	return over(err)
}

// patiently repeats f while the API server does not answer.
func (t *turn) patiently(ctx context.Context, f func() error) error {
	for wait := retryFirst; ; wait = min(2*wait, retryMost) {
		err := f()
		switch {
		case err == nil || ctx.Err() != nil || errors.Is(err, errOver) || cause(err) != "":
			return err
		case time.Now().Add(wait).After(t.until):
			return err
		}
		t.log.Warn("the API server cannot be reached; objects are brought in line later", "error", err)
		if err := audit.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// ready waits until the next object may be written.
func (t *turn) ready(ctx context.Context) error {
	for {
		now := time.Now()
		var wait time.Duration
		switch {
		case !now.Before(t.until):
			return errOver
		case !open(t.o.Windows, now):
			wait = time.Minute - now.Sub(now.Truncate(time.Minute))
		case t.past.full(now):
			wait = time.Minute
		case now.Before(t.next):
			wait = t.next.Sub(now)
		}
		if wait == 0 {
			t.began = now
			return t.renew(now)
		}
		if wait > refreshEvery { // renew does it otherwise
			t.refresh()
			t.publish(false)
		}
		if err := audit.Sleep(ctx, min(wait, t.until.Sub(now), publishEvery)); err != nil {
			return err
		}
	}
}

// renew updates the policies and bindings, unless they are younger than refreshEvery.
func (t *turn) renew(now time.Time) error {
	if t.fixer.Set != nil && now.Sub(t.fresh) < refreshEvery {
		return nil
	}
	t.refresh()
	set := t.o.Set(func(binding string) bool {
		a := t.bindings[binding]
		return a != nil && t.fixes(&a.Binding)
	})
	if set == nil {
		return errors.New("the policies are not known")
	}
	t.fixer.Set, t.fresh = set, now
	return nil
}

// interval is the least time between the beginnings of two writes.
func (t *turn) interval() time.Duration { return time.Duration(float64(time.Minute) / t.o.Rate) }

// forget removes an object from the number of those that wait.
func (t *turn) forget(c *candidate) {
	for _, name := range c.bindings {
		if a := t.bindings[name]; a != nil && a.waiting > 0 {
			a.waiting--
		}
	}
}

// one writes one object. An error means that it can be tried again.
func (t *turn) one(ctx context.Context, c *candidate) error {
	of := audit.Reference{Resource: *c.of, Namespace: c.namespace, Name: c.name}
	if c.controller != nil {
		workload, err := t.template(ctx, c)
		if err != nil {
			return err
		}
		if workload == nil {
			t.forget(c)
			t.leave(c.bindings, ofController)
			return nil
		}
		of = *workload
	}
	t.why, t.undo = "", nil
	outcome, why, err := t.fixer.Fix(ctx, of)
	if errors.Is(err, errTooLarge) {
		outcome, why, err = audit.Failed, err.Error(), nil
	}
	if err != nil {
		return err
	}
	t.forget(c)
	title := of.Resource.GVK.Kind + " " + strings.TrimPrefix(of.Namespace+"/"+of.Name, "/")
	switch outcome {
	case audit.Written, audit.Partly:
		now := time.Now()
		t.next = t.began.Add(t.interval())
		t.records.stored()
		t.past.add(t.undo, now)
		for _, name := range c.bindings {
			if a := t.bindings[name]; a != nil {
				a.written++
			}
		}
		t.log.Info("an object that exists was brought in line", "object", title, "bindings", c.bindings, "why", why)
		return nil
	case audit.Done, audit.Gone: // somebody else has fixed or deleted it
		return nil
	case audit.Declined:
		if t.why == "" {
			t.why = ofUnstable
		}
	case audit.LeftOut:
		t.why = ofPods
	case audit.Conflict:
		t.why = ofOthers
	default:
		t.why = ofFailure
		t.next = t.began.Add(t.interval()) // so that refused writes do not follow each other faster than others
		t.checkRights(ctx, c.bindings, &of)
	}
	t.leave(c.bindings, t.why)
	level := slog.LevelDebug
	if t.why == ofFailure || t.why == ofFight {
		level = slog.LevelWarn
	}
	t.log.Log(ctx, level, "an object that exists is left alone", "object", title, "bindings", c.bindings, "outcome", string(outcome), "why", words.Cut(why, 300))
	return nil
}

// checkRights reports in the statuses of bindings if mapd has no right to write an object.
func (t *turn) checkRights(ctx context.Context, bindings []string, of *audit.Reference) {
	for _, verb := range []string{"get", "patch"} {
		ask := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: of.Namespace, Verb: verb, Group: of.Resource.GVR.Group, Version: of.Resource.GVR.Version, Resource: of.Resource.GVR.Resource,
		}}}
		answer, err := t.o.Kubernetes.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, ask, metav1.CreateOptions{})
		if err != nil {
			return // the log has why the object was not written
		}
		if answer.Status.Allowed {
			continue
		}
		t.why = ofRights
		for _, name := range bindings {
			if a := t.bindings[name]; a != nil {
				a.problem = fmt.Sprintf("mapd may not %s %s: add a ClusterRole with the label %s", verb, of.Resource.GVR.GroupResource(), AggregateLabel)
			}
		}
		return
	}
}

// leaveAlone returns the reason why an object must not be written, "" if there is none.
func (t *turn) leaveAlone(r *audit.Result, was, want *unstructured.Unstructured) string {
	if pointers := t.past.changedBack(was, want); len(pointers) > 0 {
		slices.Sort(pointers)
		t.fight(r, was, pointers)
		t.why = ofFight
		return "somebody has changed back " + audit.FieldName(pointers[0])
	}
	switch {
	case r.Owner != "" && !t.o.GitOps:
		t.why = ofGit
		return r.Owner + " applies it"
	case r.Controller != nil && hasPods(was):
		t.why = ofController
		return r.Controller.Kind + " " + r.Controller.Name + " has made it"
	case t.past.recent(was, time.Now()):
		t.why = ofHour
		return "its owner had a change within the hour"
	}
	return ""
}

// fight stops the bindings whose policies set fields that somebody has changed back.
func (t *turn) fight(r *audit.Result, was *unstructured.Unstructured, pointers []string) {
	field := audit.FieldName(pointers[0])
	// Not everybody who may read bindings may see the names of objects, so only the log has them.
	text := fmt.Sprintf("nothing more is written: %s of an object of the kind %s was changed back", field, was.GetKind())
	if manager := lastManager(was); manager != "" {
		text += ", at last by " + words.Cut(manager, 128)
	}
	text += "; set " + api.ExistingAnnotation + " to report, and to fix when that is settled"
	of := func(a audit.Actor) bool {
		return slices.ContainsFunc(pointers, func(p string) bool { return slices.Contains(a.Fields, audit.FieldName(p)) })
	}
	all := !slices.ContainsFunc(r.By, of)
	for _, a := range r.By {
		b := t.bindings[a.Binding]
		if b == nil || !all && !of(a) {
			continue
		}
		t.mu.Lock()
		t.stopped[b.UID] = text
		t.mu.Unlock()
		t.log.Error("a field was changed back, so nothing more is written for the binding", "binding", b.Name, "object", r.Title(), "field", field)
	}
	t.past.forget(was.GetUID())
	t.fresh = time.Time{} // the policies by these bindings must not run again
	t.publish(true)
}

// lastManager returns who has written an object last, as its managedFields say.
func lastManager(u *unstructured.Unstructured) string {
	var last metav1.ManagedFieldsEntry
	for _, m := range u.GetManagedFields() {
		if m.Subresource == "" && m.Manager != audit.Manager && m.Time != nil && (last.Time == nil || !m.Time.Before(last.Time)) {
			last = m
		}
	}
	return last.Manager
}

// hasPods reports whether an object is a Pod, or has a template of Pods.
func hasPods(u *unstructured.Unstructured) bool {
	if u.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Pod"}) {
		return true
	}
	for _, path := range [][]string{{"spec", "template", "spec", "containers"}, {"spec", "jobTemplate", "spec", "template", "spec", "containers"}} {
		if _, ok, _ := unstructured.NestedSlice(u.Object, path...); ok {
			return true
		}
	}
	return false
}

// ownerOf returns a hash that is the same for objects with the same controller or the same owner
// in Git. Objects with neither have their own.
func ownerOf(u *unstructured.Unstructured) uint64 {
	if c := metav1.GetControllerOf(u); c != nil {
		return hash(string(c.UID))
	}
	if owner := audit.GitOpsOwner(u); owner != "" {
		return hash(owner)
	}
	return hash(string(u.GetUID()))
}

// template returns the workload whose template creates a Pod, nil if there is none that can be
// written.
func (t *turn) template(ctx context.Context, c *candidate) (*audit.Reference, error) {
	owner := c.controller
	for range 2 { // a ReplicaSet, and its Deployment
		gv, err := schema.ParseGroupVersion(owner.APIVersion)
		if err != nil || gv.Group != "apps" || !slices.Contains([]string{"ReplicaSet", "Deployment", "StatefulSet", "DaemonSet"}, owner.Kind) {
			return nil, nil
		}
		of, ok := t.cluster.Serves(gv.Group, owner.Kind, gv.Version)
		if !ok {
			return nil, nil
		}
		ref := &audit.Reference{Resource: of, Namespace: c.namespace, Name: owner.Name, Template: true}
		if owner.Kind != "ReplicaSet" {
			return ref, nil
		}
		above, found, err := t.cluster.ControllerOf(ctx, *ref)
		if err != nil || !found {
			return nil, err
		}
		if above == nil {
			return ref, nil
		}
		owner = above
	}
	return nil, nil
}
