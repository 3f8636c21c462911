package store

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

const (
	// minRetry and maxRetry bound how long after a failure a resource is asked for
	// again. client-go's own bound of 30 s is meant for clusters with thousands
	// of clients; a policy has to act within a second of being served.
	minRetry = 50 * time.Millisecond
	maxRetry = time.Second

	// goneAfter is how long a resource that was served has to be unknown to the
	// server before its objects count as deleted. Usually each of them is reported
	// as deleted before; not if the connection was cut in that moment.
	goneAfter = 3 * time.Second
)

// watched are the objects of one cluster-scoped resource, as a reflector brings
// them. It implements cache.ReflectorStore and cache.TransformingStore.
type watched struct {
	resource schema.GroupVersionResource
	client   dynamic.Interface
	log      *slog.Logger
	// trim takes from an object what nobody reads, before it is kept.
	trim func(*unstructured.Unstructured)
	// tell is called when the objects have been read for the first time and, if
	// changes are tracked, after every change.
	tell func()
	// track says that changes are noted for take.
	track bool

	mu     sync.RWMutex
	byName map[string]*unstructured.Unstructured
	dirty  map[string]struct{} // names changed since the last take
	synced bool
	err    error // of the last call; nil while all is well
}

func newWatched(client dynamic.Interface, resource schema.GroupVersionResource, log *slog.Logger, trim func(*unstructured.Unstructured), tell func()) *watched {
	return &watched{
		resource: resource, client: client, log: log.With("resource", resource.GroupResource().String()),
		trim: trim, tell: tell,
		byName: map[string]*unstructured.Unstructured{}, dirty: map[string]struct{}{},
	}
}

// run follows the resource until ctx is done. That it is not served, not yet or
// no longer, is a state like any other.
func (w *watched) run(ctx context.Context) {
	resource := w.client.Resource(w.resource)
	reflector := cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				list, err := resource.List(ctx, o)
				if err != nil && ctx.Err() == nil {
					w.note(err)
				}
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				events, err := resource.Watch(ctx, o)
				// A server that cannot begin a watch with what is there is asked for a list.
				if ctx.Err() == nil && (o.SendInitialEvents == nil || !apierrors.IsInvalid(err)) {
					w.note(err)
				}
				return events, err
			},
		}, w.client),
		&unstructured.Unstructured{}, w,
		cache.ReflectorOptions{
			Name:    w.resource.Resource,
			Backoff: &wait.Backoff{Duration: minRetry, Factor: 2, Jitter: 0.2, Steps: 8, Cap: maxRetry},
		})
	delay := minRetry
	var missing time.Time // since when, zero if it is not
	for ctx.Err() == nil {
		start := time.Now()
		// Reflector.Run would wait and log as it likes.
		err := reflector.ListAndWatchWithContext(ctx)
		switch {
		case !apierrors.IsNotFound(err):
			missing = time.Time{}
		case missing.IsZero():
			missing = start
		case time.Since(missing) >= goneAfter:
			w.vanish()
		}
		if err == nil || time.Since(start) > 10*maxRetry {
			delay = minRetry // the watch ended, as each does sooner or later
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
		delay = min(2*delay, maxRetry)
	}
}

// note keeps the outcome of a call, and logs it if it is news.
func (w *watched) note(err error) {
	w.mu.Lock()
	before := w.err
	w.err = err
	w.mu.Unlock()
	if err != nil && (before == nil || before.Error() != err.Error()) {
		w.log.Error("not watching", "error", err)
	}
}

// vanish takes all objects for deleted.
func (w *watched) vanish() {
	w.mu.RLock()
	n := len(w.byName)
	w.mu.RUnlock()
	if n > 0 {
		w.log.Error("the server no longer knows the resource, its objects are gone", "objects", n)
		w.replace(nil)
	}
}

// ready returns nil once all objects have been read.
func (w *watched) ready() error {
	w.mu.RLock()
	defer w.mu.RUnlock()
	switch {
	case w.synced:
		return nil
	case w.err != nil:
		return fmt.Errorf("%s: not read yet: %w", w.resource.GroupResource(), w.err)
	default:
		return fmt.Errorf("%s: not read yet", w.resource.GroupResource())
	}
}

// get returns an object, nil if there is none of that name.
func (w *watched) get(name string) *unstructured.Unstructured {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.byName[name]
}

// take returns the objects that have changed since it was called last, nil for
// those that are gone.
func (w *watched) take() map[string]*unstructured.Unstructured {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.dirty) == 0 {
		return nil
	}
	out := make(map[string]*unstructured.Unstructured, len(w.dirty))
	for name := range w.dirty {
		out[name] = w.byName[name]
	}
	w.dirty = map[string]struct{}{}
	return out
}

// Transformer implements cache.TransformingStore: it is applied to objects that
// wait for the rest of a first list, too.
func (w *watched) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return nil, fmt.Errorf("a %T among %s", obj, w.resource.GroupResource())
		}
		w.trim(u)
		return u, nil
	}
}

// Add implements cache.ReflectorStore.
func (w *watched) Add(obj any) error { return w.Update(obj) }

// Update implements cache.ReflectorStore.
func (w *watched) Update(obj any) error {
	if _, err := w.Transformer()(obj); err != nil {
		return err
	}
	u := obj.(*unstructured.Unstructured)
	w.mu.Lock()
	w.set(u.GetName(), u)
	w.mu.Unlock()
	if w.track {
		w.tell()
	}
	return nil
}

// Delete implements cache.ReflectorStore.
func (w *watched) Delete(obj any) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("a %T among %s", obj, w.resource.GroupResource())
	}
	w.mu.Lock()
	w.set(u.GetName(), nil)
	w.mu.Unlock()
	if w.track {
		w.tell()
	}
	return nil
}

// Replace implements cache.ReflectorStore.
func (w *watched) Replace(objs []any, _ string) error {
	list := make([]*unstructured.Unstructured, len(objs))
	for i, obj := range objs {
		if _, err := w.Transformer()(obj); err != nil {
			return err
		}
		list[i] = obj.(*unstructured.Unstructured)
	}
	w.replace(list)
	return nil
}

// Resync implements cache.ReflectorStore.
func (w *watched) Resync() error { return nil }

func (w *watched) replace(list []*unstructured.Unstructured) {
	w.mu.Lock()
	gone := maps.Clone(w.byName)
	for _, u := range list {
		name := u.GetName()
		delete(gone, name)
		// What a list brings again, as after a broken connection, is no change.
		if old := w.byName[name]; old == nil || old.GetUID() != u.GetUID() || old.GetResourceVersion() != u.GetResourceVersion() {
			w.set(name, u)
		}
	}
	for name := range gone {
		w.set(name, nil)
	}
	first := !w.synced
	w.synced = true
	w.mu.Unlock()
	if w.track || first {
		w.tell()
	}
}

func (w *watched) set(name string, u *unstructured.Unstructured) {
	if u == nil {
		delete(w.byName, name)
	} else {
		w.byName[name] = u
	}
	if w.track {
		w.dirty[name] = struct{}{}
	}
}

// trimObject drops what neither mapd nor its users read of policies and bindings,
// half of their size: who owns which field, and the copy that kubectl apply
// makes of an object in itself.
func trimObject(u *unstructured.Unstructured) {
	meta, _ := u.Object["metadata"].(map[string]any)
	delete(meta, "managedFields")
	if annotations, ok := meta["annotations"].(map[string]any); ok {
		delete(annotations, "kubectl.kubernetes.io/last-applied-configuration")
	}
}
