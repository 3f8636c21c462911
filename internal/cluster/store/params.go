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

	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/pkg/openapi"
)

const (
	// paramWait is how long a request waits for parameters: until all objects of a kind have been
	// read, or for the API server's answer about one that was not found (spec §3.1).
	paramWait = time.Second
	// linger is how long a kind is kept after its last policy was deleted: for requests that use
	// an older snapshot, and for a policy that is deleted and created again.
	linger = 10 * time.Second
	// staleAfter is how long the server may refuse to list a kind before its objects are dropped.
	// If a right was revoked, mapd must not use the objects any more; but a server that has just
	// started may not know all rights yet.
	staleAfter = 30 * time.Second
)

// params has the objects of each kind that policies use as parameters, while policies use it. It
// implements binding.Params. The objects that it returns are shared and must not be modified.
type params struct {
	client  dynamic.Interface
	types   *openapi.Types
	log     *slog.Logger
	changed func() // called when the State of a kind has changed

	kinds atomic.Pointer[map[schema.GroupVersionKind]*paramKind] // immutable map

	running sync.WaitGroup // a goroutine for each kind

	mu sync.Mutex // held while kinds is replaced
}

// newParams returns params without kinds. changed is called when the State of a kind has
// changed; it must return soon.
func newParams(client dynamic.Interface, types *openapi.Types, log *slog.Logger, changed func()) *params {
	p := &params{client: client, types: types, log: log, changed: changed}
	p.kinds.Store(&map[schema.GroupVersionKind]*paramKind{})
	return p
}

// paramKind is one kind in use.
type paramKind struct {
	objects *watch.Mirror[param]
	stop    context.CancelFunc
	unused  time.Time // since when no policy uses it; zero: one does. Guarded by params.mu.
}

// A param is an object in the shape in which policies see it.
type param struct {
	object *unstructured.Unstructured
	labels labels.Set // to evaluate selectors without reading the object each time
}

// Use sets the kinds that policies name. It starts to watch new ones, until ctx is done.
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
		p.running.Go(func() { k.objects.Run(life) })
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
		p.look() // new kinds may have missed a change of the served kinds
	}
}

func (p *params) newKind(gvk schema.GroupVersionKind) *paramKind {
	return &paramKind{stop: func() {}, objects: watch.New(watch.Options[param]{
		Client: p.client, Log: p.log, Types: p.types, Kinds: []schema.GroupVersionKind{gvk},
		Keep: func(u *unstructured.Unstructured, _ param) param {
			u = p.shape(gvk, u)
			return param{object: u, labels: u.GetLabels()}
		},
		StateChanged: p.changed, ForgetAfter: staleAfter,
	})}
}

// sweep stops watching the kinds that have been unused for longer than linger.
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

func (p *params) kind(gvk schema.GroupVersionKind) *paramKind { return (*p.kinds.Load())[gvk] }

// look makes each kind check again whether the server has it.
func (p *params) look() {
	for _, k := range *p.kinds.Load() {
		k.objects.Look()
	}
}

// State returns the state of a kind, even if no policy uses it.
func (p *params) State(gvk schema.GroupVersionKind) ParamState {
	if k := p.kind(gvk); k != nil {
		s := k.objects.State()
		return ParamState{GVK: gvk, Found: s.Served, Synced: s.Read, Err: s.Err}
	}
	_, found := p.types.ResourceFor(gvk)
	return ParamState{GVK: gvk, Found: found}
}

// shape returns an object as policies see it (spec §3.2): objects of built-in kinds as an
// informer of the Go type has them, objects of custom kinds unchanged. It drops managedFields,
// which are as large as the rest. The caller must not use u afterwards.
func (p *params) shape(gvk schema.GroupVersionKind, u *unstructured.Unstructured) *unstructured.Unstructured {
	if meta, ok := u.Object["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
	kind, _ := p.types.Kind(gvk)
	if !kind.Builtin() {
		return u
	}
	obj := u.Object
	// An object from a server fails to decode only if the server is newer than the Go type.
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

// Get implements binding.Params. An object that is not in memory may be new, or its kind
// may not have been read: Get asks the server (k8s.io/apiserver
// …/policy/generic/policy_dispatcher.go: getParamDirectly).
func (p *params) Get(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	if k := p.kind(gvk); k != nil {
		if found, ok := k.objects.Get(namespace, name); ok {
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

// List implements binding.Params. It returns objects in memory only, and waits up to paramWait
// until they have been read.
func (p *params) List(ctx context.Context, gvk schema.GroupVersionKind, namespace string, sel labels.Selector) ([]*unstructured.Unstructured, error) {
	k := p.kind(gvk)
	if k == nil {
		return nil, notSynced(gvk, nil)
	}
	if err := k.wait(ctx, gvk); err != nil {
		return nil, err
	}
	var found []*unstructured.Unstructured
	k.objects.EachNamespace(func(in string, items map[string]param) {
		if namespace != "" && in != namespace {
			return
		}
		for _, item := range items {
			if sel.Matches(item.labels) {
				found = append(found, item.object)
			}
		}
	})
	return found, nil
}

// wait returns nil when the kind's objects are in memory. It does not wait if the server has
// refused to list them.
func (k *paramKind) wait(ctx context.Context, gvk schema.GroupVersionKind) error {
	read := k.objects.Read()
	select {
	case <-read:
		return nil
	default:
	}
	if err := k.objects.State().Err; watch.Refused(err) {
		return notSynced(gvk, err)
	}
	timer := time.NewTimer(paramWait)
	defer timer.Stop()
	select {
	case <-read:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return notSynced(gvk, nil)
}

// notSynced returns an error with the server's text (k8s.io/apiserver
// …/policy/generic/policy_dispatcher.go: CollectParams). An API server can always list; that mapd
// may not be allowed to is added.
func notSynced(gvk schema.GroupVersionKind, reason error) error {
	kind := &admissionregistrationv1.ParamKind{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind}
	err := fmt.Errorf("paramKind kind `%v` not yet synced to use for admission", kind.String())
	if reason != nil {
		err = fmt.Errorf("%w: %w", err, reason)
	}
	return err
}
