package store

import (
	"context"
	"fmt"
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
	"k8s.io/klog/v2"
)

// maxRefusedRetry bounds how long a resource is left alone that the server has
// refused to list. Rights are granted by people, so nobody waits for the second.
const maxRefusedRetry = 5 * time.Second

// follow keeps store true to a resource of the server, in all namespaces, until
// ctx is done. Every call's outcome goes to note, nil for success; a failure
// is tried again, soon.
func follow(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, store cache.TransformingStore, note func(error)) {
	followSome(ctx, client, gvr, "", store, note)
}

// followSome is follow for the objects that a field selector chooses.
func followSome(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, fields string, store cache.TransformingStore, note func(error)) {
	resource := client.Resource(gvr)
	tell := func(err error) {
		// A version that is too old, as after a pause, is answered by listing anew.
		if ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			note(err)
		}
	}
	reflector := cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			// The reflector lists under a context that never ends.
			ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector = fields
				list, err := resource.List(ctx, o)
				tell(err)
				return list, err
			},
			WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.FieldSelector = fields
				events, err := resource.Watch(ctx, o)
				// A watch that was to begin with all objects is followed by a list when it fails.
				if err == nil || o.SendInitialEvents == nil {
					tell(err)
				}
				return events, err
			},
		}, client),
		&unstructured.Unstructured{}, store,
		cache.ReflectorOptions{
			Name:    gvr.GroupResource().String(),
			Backoff: &wait.Backoff{Duration: minRetry, Factor: 2, Jitter: 0.2, Steps: 8, Cap: maxRetry},
		})
	// What there is to say is said by note, once.
	quiet := klog.NewContext(ctx, klog.Logger{})
	delay := minRetry
	for ctx.Err() == nil {
		start := time.Now()
		// Reflector.Run would wait and log as it likes.
		err := reflector.ListAndWatchWithContext(quiet)
		limit := maxRetry
		if refused(err) {
			limit = maxRefusedRetry
		} else if err == nil || time.Since(start) > 10*maxRetry {
			delay = minRetry // the watch ended, as each does sooner or later
		}
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
		delay = min(2*delay, limit)
	}
}

// refused says that the server knows what it was asked for and does not want to
// tell.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

// A mirror holds what is to be kept of each object of a resource. It implements
// cache.TransformingStore, so that an object is never held whole for longer than
// it takes to read it.
type mirror[T any] struct {
	// keep makes what is kept of an object; old is what was kept under its name
	// until now, the zero value if nothing was.
	keep func(u *unstructured.Unstructured, old T) T
	// changed is called after every change, and when the objects have been read.
	changed func()

	mu     sync.RWMutex
	items  map[string]map[string]T // by namespace and name
	filled chan struct{}           // closed once all objects have been read
	news   *news                   // nil if nobody asks
}

// news are the names of the objects that may have changed since somebody asked
// last.
type news struct {
	mu    sync.Mutex
	names map[string]bool
	all   bool // any may have
}

func (n *news) add(name string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.names == nil {
		n.names = map[string]bool{}
	}
	n.names[name] = true
}

func (n *news) addAll() {
	if n == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all = true
}

func (n *news) take() (names map[string]bool, all bool) {
	if n == nil {
		return nil, true
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	names, all = n.names, n.all
	n.names, n.all = nil, false
	return names, all
}

func newMirror[T any](keep func(*unstructured.Unstructured, T) T, changed func()) *mirror[T] {
	return &mirror[T]{keep: keep, changed: changed, filled: make(chan struct{})}
}

// get returns what is kept of an object.
func (m *mirror[T]) get(namespace, name string) (T, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	item, ok := m.items[namespace][name]
	return item, ok
}

// each calls f for all objects of a namespace, in any order. f must not call m.
func (m *mirror[T]) each(namespace string, f func(name string, item T)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for name, item := range m.items[namespace] {
		f(name, item)
	}
}

// read returns a channel that is closed once all objects have been read.
func (m *mirror[T]) read() <-chan struct{} {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.filled
}

func (m *mirror[T]) isRead() bool {
	select {
	case <-m.read():
		return true
	default:
		return false
	}
}

// forget drops everything, as if nothing had been read.
func (m *mirror[T]) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.items = nil
	m.news.addAll()
	select {
	case <-m.filled:
		m.filled = make(chan struct{})
	default:
	}
}

// kept is an object on its way into a mirror: no more of it than its name.
type kept[T any] struct {
	metav1.ObjectMeta
	item T
}

func (m *mirror[T]) convert(obj any) (*kept[T], error) {
	switch obj := obj.(type) {
	case *kept[T]:
		return obj, nil
	case *unstructured.Unstructured:
		namespace, name := obj.GetNamespace(), obj.GetName()
		old, _ := m.get(namespace, name)
		return &kept[T]{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, item: m.keep(obj, old)}, nil
	}
	return nil, fmt.Errorf("a %T is no object", obj)
}

// Transformer implements cache.TransformingStore: it is applied to objects that
// wait for the rest of a first list.
func (m *mirror[T]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return m.convert(obj) }
}

// Add implements cache.ReflectorStore.
func (m *mirror[T]) Add(obj any) error { return m.Update(obj) }

// Update implements cache.ReflectorStore.
func (m *mirror[T]) Update(obj any) error {
	k, err := m.convert(obj)
	if err != nil {
		return err
	}
	m.mu.Lock()
	if m.items == nil {
		m.items = map[string]map[string]T{}
	}
	if m.items[k.Namespace] == nil {
		m.items[k.Namespace] = map[string]T{}
	}
	m.items[k.Namespace][k.Name] = k.item
	m.news.add(k.Name)
	m.mu.Unlock()
	m.changed()
	return nil
}

// Delete implements cache.ReflectorStore.
func (m *mirror[T]) Delete(obj any) error {
	u, ok := obj.(metav1.Object)
	if !ok {
		return fmt.Errorf("a %T is no object", obj)
	}
	m.mu.Lock()
	delete(m.items[u.GetNamespace()], u.GetName())
	if len(m.items[u.GetNamespace()]) == 0 {
		delete(m.items, u.GetNamespace())
	}
	m.news.add(u.GetName())
	m.mu.Unlock()
	m.changed()
	return nil
}

// Replace implements cache.ReflectorStore.
func (m *mirror[T]) Replace(objs []any, _ string) error {
	items := map[string]map[string]T{}
	for _, obj := range objs {
		k, err := m.convert(obj)
		if err != nil {
			return err
		}
		if items[k.Namespace] == nil {
			items[k.Namespace] = map[string]T{}
		}
		items[k.Namespace][k.Name] = k.item
	}
	m.mu.Lock()
	m.items = items
	m.news.addAll()
	select {
	case <-m.filled:
	default:
		close(m.filled)
	}
	m.mu.Unlock()
	m.changed()
	return nil
}

// Resync implements cache.ReflectorStore.
func (m *mirror[T]) Resync() error { return nil }
