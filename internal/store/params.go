package store

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/pkg/openapi"
)

const (
	// paramWait is how long a request waits for parameters: for all of a kind to be
	// read, or for the answer about one that was not found (spec §3.1).
	paramWait = time.Second
	// linger is how long a kind is kept after its last policy has gone: for requests
	// that run on the snapshot before, and for a policy that is deleted and made
	// anew.
	linger = 10 * time.Second
	// resolveInterval is how often it is looked whether the kinds in use are served
	// as they were. That is a look into a map.
	resolveInterval = 250 * time.Millisecond
	// staleAfter is how long the server may refuse to list a kind before what was
	// read of it is no longer used: a right that was taken away should end, one
	// that a server which has just started does not know of yet should not.
	staleAfter = 30 * time.Second
)

// params hold the objects that policies take as parameters: those of each kind
// in use, as long as it is in use. They implement binding.Params. An object that
// is handed out is shared and must not be modified.
type params struct {
	client dynamic.Interface
	types  *openapi.Types
	log    *slog.Logger

	kinds atomic.Pointer[map[schema.GroupVersionKind]*paramCache] // immutable map

	running sync.WaitGroup // a goroutine for each kind

	mu      sync.Mutex // of what follows, and of who replaces kinds
	changed []func()
}

func newParams(client dynamic.Interface, types *openapi.Types, log *slog.Logger) *params {
	p := &params{client: client, types: types, log: log}
	p.kinds.Store(&map[schema.GroupVersionKind]*paramCache{})
	return p
}

// A paramCache is one kind in use.
type paramCache struct {
	gvk    schema.GroupVersionKind
	params *params
	stop   context.CancelFunc
	unused time.Time // since when; zero: in use. Of params.mu.

	objects *mirror[param]
	tell    func(error) // logs what is news

	mu      sync.Mutex
	state   ParamState
	refused time.Time // since when the server refuses to list; zero: it does not
}

// A param is an object in the shape in which policies see it.
type param struct {
	object *unstructured.Unstructured
	labels labels.Set // to select by, without asking the object each time
}

// Use says which kinds the policies name from now on. ctx bounds the life of what
// is started for the new ones.
func (p *params) Use(ctx context.Context, kinds []schema.GroupVersionKind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := *p.kinds.Load()
	next := maps.Clone(old)
	used := make(map[schema.GroupVersionKind]bool, len(kinds))
	for _, gvk := range kinds {
		used[gvk] = true
		if k := next[gvk]; k != nil {
			k.unused = time.Time{}
			continue
		}
		k := p.newKind(gvk)
		next[gvk] = k
		var life context.Context
		life, k.stop = context.WithCancel(ctx)
		p.running.Go(func() { k.run(life) })
	}
	now := time.Now()
	for gvk, k := range next {
		if !used[gvk] && k.unused.IsZero() {
			k.unused = now
			time.AfterFunc(linger, p.sweep)
		}
	}
	if len(next) != len(old) {
		p.kinds.Store(&next)
	}
}

func (p *params) newKind(gvk schema.GroupVersionKind) *paramCache {
	k := &paramCache{
		gvk: gvk, params: p, tell: outcome(p.log.With("paramKind", gvk.String())),
		stop: func() {}, state: ParamState{GVK: gvk},
	}
	k.objects = newMirror(func(u *unstructured.Unstructured, _ param) param {
		u = p.shape(gvk, u)
		return param{object: u, labels: u.GetLabels()}
	}, k.update)
	return k
}

// sweep stops the kinds that have not been in use for long enough.
func (p *params) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := maps.Clone(*p.kinds.Load())
	for gvk, k := range next {
		if !k.unused.IsZero() && time.Since(k.unused) >= linger {
			k.stop()
			delete(next, gvk)
		}
	}
	p.kinds.Store(&next)
}

func (p *params) kind(gvk schema.GroupVersionKind) *paramCache { return (*p.kinds.Load())[gvk] }

// State tells how a kind is doing.
func (p *params) State(gvk schema.GroupVersionKind) ParamState {
	if k := p.kind(gvk); k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.state
	}
	_, found := p.types.ResourceFor(gvk)
	return ParamState{GVK: gvk, Found: found}
}

// OnChange registers a function to call when the State of a kind has changed. It
// must return soon.
func (p *params) OnChange(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changed = append(p.changed, f)
}

func (p *params) notify() {
	p.mu.Lock()
	changed := p.changed
	p.mu.Unlock()
	for _, f := range changed {
		f()
	}
}

// run follows the kind until ctx is done: the resource by which it is served may
// come, go, and come back as another one.
func (k *paramCache) run(ctx context.Context) {
	tick := time.NewTicker(resolveInterval)
	defer tick.Stop()
	for {
		res, ok := k.params.types.ResourceFor(k.gvk)
		k.set(func(s *ParamState) { *s = ParamState{GVK: k.gvk, Found: ok} })
		reading, stop := context.WithCancel(ctx)
		var wg sync.WaitGroup
		if ok {
			wg.Go(func() { follow(reading, k.params.client, res.GVR, k.objects, k.note) })
		}
		for same := true; same; {
			select {
			case <-ctx.Done():
				same = false
			case <-tick.C:
				now, still := k.params.types.ResourceFor(k.gvk)
				same = still == ok && now.GVR == res.GVR && now.Namespaced == res.Namespaced
			}
		}
		stop()
		wg.Wait()
		k.objects.forget()
		if ctx.Err() != nil {
			return
		}
	}
}

// note takes the outcome of a call for the kind's objects.
func (k *paramCache) note(err error) {
	k.mu.Lock()
	switch {
	case !refused(err):
		k.refused = time.Time{}
	case k.refused.IsZero():
		k.refused = time.Now()
	}
	stale := !k.refused.IsZero() && time.Since(k.refused) >= staleAfter
	before := k.state.Err
	k.mu.Unlock()
	if stale && k.objects.isRead() {
		k.objects.forget()
	}
	if err != nil && manner(err) == manner(before) {
		err = before // the same in other words
	}
	// A server serves a new kind about a second after it says so.
	if !apierrors.IsNotFound(err) {
		k.tell(err)
	}
	k.set(func(s *ParamState) { s.Err, s.Synced = err, k.objects.isRead() })
}

// update takes in that objects have changed.
func (k *paramCache) update() {
	k.set(func(s *ParamState) { s.Synced = k.objects.isRead() })
}

// set changes the state, and tells if that made a difference.
func (k *paramCache) set(change func(*ParamState)) {
	k.mu.Lock()
	before := k.state
	change(&k.state)
	same := before.Found == k.state.Found && before.Synced == k.state.Synced && manner(before.Err) == manner(k.state.Err)
	k.mu.Unlock()
	if !same {
		k.params.notify()
	}
}

// shape gives an object as policies see it (spec §3.2): of a built-in kind what
// an informer of its Go type would hold, a custom one as it is. managedFields are
// dropped from both: they are as large as the rest, and about the rest only.
// u is given away.
func (p *params) shape(gvk schema.GroupVersionKind, u *unstructured.Unstructured) *unstructured.Unstructured {
	if meta, ok := u.Object["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
	kind, _ := p.types.Kind(gvk)
	if !kind.Builtin() {
		return u
	}
	obj := u.Object
	// What a server has sent is in order; what is not is newer than the Go type.
	if normal, err := kind.Normalize(obj); err == nil {
		obj = normal
	}
	out := maps.Clone(obj)
	delete(out, "apiVersion")
	delete(out, "kind")
	return &unstructured.Unstructured{Object: out}
}

// Kind implements binding.Params.
func (p *params) Kind(gvk schema.GroupVersionKind) (namespaced bool, err error) {
	res, ok := p.types.ResourceFor(gvk)
	if !ok {
		return false, fmt.Errorf("no matches for kind %q in version %q", gvk.Kind, gvk.GroupVersion())
	}
	return res.Namespaced, nil
}

// Get implements binding.Params. What is not in memory may be new, or the kind
// has not been read yet or cannot be: the server is asked (k8s.io/apiserver
// …/policy/generic/policy_dispatcher.go: getParamDirectly).
func (p *params) Get(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	if k := p.kind(gvk); k != nil {
		if found, ok := k.objects.get(namespace, name); ok {
			return found.object, nil
		}
	}
	res, ok := p.types.ResourceFor(gvk)
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, name)
	}
	ctx, cancel := context.WithTimeout(ctx, paramWait)
	defer cancel()
	var client dynamic.ResourceInterface = p.client.Resource(res.GVR)
	if namespace != "" {
		client = p.client.Resource(res.GVR).Namespace(namespace)
	}
	u, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return p.shape(gvk, u), nil
}

// List implements binding.Params. It answers from memory only, for which it
// waits a little.
func (p *params) List(ctx context.Context, gvk schema.GroupVersionKind, namespace string, sel labels.Selector) ([]*unstructured.Unstructured, error) {
	k := p.kind(gvk)
	if k == nil {
		return nil, notSynced(gvk, nil)
	}
	if err := k.wait(ctx); err != nil {
		return nil, err
	}
	var found []*unstructured.Unstructured
	k.objects.each(namespace, func(_ string, item param) {
		if sel.Matches(item.labels) {
			found = append(found, item.object)
		}
	})
	return found, nil
}

// wait returns nil when the kind's objects are in memory. Where the server has
// refused to list them there is nothing to wait for.
func (k *paramCache) wait(ctx context.Context) error {
	read := k.objects.read()
	select {
	case <-read:
		return nil
	default:
	}
	if err := k.params.State(k.gvk).Err; refused(err) {
		return notSynced(k.gvk, err)
	}
	timer := time.NewTimer(paramWait)
	defer timer.Stop()
	select {
	case <-read:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return notSynced(k.gvk, nil)
}

// notSynced is the server's text (k8s.io/apiserver
// …/policy/generic/policy_dispatcher.go: CollectParams). A server may always list;
// that mapd may not is added.
func notSynced(gvk schema.GroupVersionKind, reason error) error {
	kind := &admissionregistrationv1.ParamKind{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind}
	err := fmt.Errorf("paramKind kind `%v` not yet synced to use for admission", kind.String())
	if reason != nil {
		err = fmt.Errorf("%w: %w", err, reason)
	}
	return err
}
