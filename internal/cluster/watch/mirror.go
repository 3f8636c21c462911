package watch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/mapd-project/mapd/pkg/openapi"
)

// Options configure a Mirror. Client, Keep, and either Resource or Types with Kinds are required.
type Options[T any] struct {
	Client dynamic.Interface
	Log    *slog.Logger // nil: no log
	// Resource is read all the time. While the server does not serve it, the Mirror retries.
	Resource schema.GroupVersionResource
	// Kinds are versions of one kind that the server may or may not serve. The first one in Types
	// is read. After a change of Types, call Look.
	Types *openapi.Types
	Kinds []schema.GroupVersionKind

	Selection
	// Keep returns the reduced form of an object; old is the one that is stored under its name,
	// or the zero value. It may modify the object.
	Keep func(u *unstructured.Unstructured, old T) T
	// Changed is called after every change of an object, and when all objects have been read. It
	// must return soon. May be nil.
	Changed func()
	// StateChanged is called when State returns a new State. It must return soon. May be nil.
	StateChanged func()
	// EmptyAfter is how long the server may not know the resource before its objects count as
	// deleted; 0 means for ever. Usually the server reports each deletion before, but not if the
	// connection breaks at that moment.
	EmptyAfter time.Duration
	// ForgetAfter is how long the server may deny access before the Mirror drops its objects; 0
	// means for ever.
	ForgetAfter time.Duration
	// Names makes the Mirror record which objects change, for TakeChanged.
	Names bool
}

// State describes the success of reading.
type State struct {
	// Known: it is known whether the server serves the resource. Served: it does. Read: all
	// objects have been read.
	Known, Served, Read bool
	// Err is the outcome of the last request. If errors of one category follow each other, Err is
	// the first of them.
	Err error
}

// Mirror has a reduced form of each object of a resource, see Options.Keep. It implements
// cache.TransformingStore, so that whole objects are in memory only while they are read. It is
// safe for concurrent use.
type Mirror[T any] struct {
	o    Options[T]
	name string // of the resource or kind, in errors
	log  *slog.Logger
	// logOutcome logs the outcome of a request if it differs from the last one.
	logOutcome func(error)
	look       Signal

	mu       sync.RWMutex
	items    map[string]map[string]T // by namespace and name
	read     chan struct{}           // closed once all objects have been read
	names    map[string]bool         // of objects that have changed since TakeChanged
	all      bool                    // any object may have changed since TakeChanged
	state    State                   // except Read
	since    time.Time               // since when state.Err is as it is
	notified State                   // the State at the last call of StateChanged
}

// New returns an empty Mirror.
func New[T any](o Options[T]) *Mirror[T] {
	m := &Mirror[T]{o: o, log: o.Log, read: make(chan struct{}), look: NewSignal()}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if len(o.Kinds) > 0 {
		m.name = o.Kinds[0].GroupKind().String()
		m.log = m.log.With("kind", m.name)
	} else {
		m.name = o.Resource.GroupResource().String()
		m.log = m.log.With("resource", m.name)
		m.state = State{Known: true, Served: true}
	}
	m.logOutcome, m.notified = LogOutcomes(m.log), m.state
	return m
}

// Look makes Run determine again which resource to read. A Mirror of Kinds reads nothing before
// the first call.
func (m *Mirror[T]) Look() { m.look.Notify() }

// Run lists and watches until ctx is done.
func (m *Mirror[T]) Run(ctx context.Context) {
	if len(m.o.Kinds) == 0 {
		follow(ctx, m.o.Client, m.o.Resource, m.o.Selection, m, m.Note)
		return
	}
	m.look.Wait(ctx)
	var last served
	for ctx.Err() == nil {
		now := m.find()
		// Other versions of the same resource have the same objects, so the present ones stay
		// until they have been read again.
		if now.resource.GroupResource() != last.resource.GroupResource() || now.namespaced != last.namespaced {
			m.forget()
		}
		m.SetServed(now != served{})
		reading, stop := context.WithCancel(ctx)
		var work sync.WaitGroup
		if now != (served{}) {
			work.Go(func() { follow(reading, m.o.Client, now.resource, m.o.Selection, m, m.Note) })
		}
		for m.look.Wait(ctx) && m.find() == now {
		}
		stop()
		work.Wait()
		last = now
	}
}

// served is a resource that the server serves; the zero value stands for none.
type served struct {
	resource   schema.GroupVersionResource
	namespaced bool
}

// find returns the resource of the first of Kinds that the server serves.
func (m *Mirror[T]) find() served {
	for _, gvk := range m.o.Kinds {
		if r, ok := m.o.Types.ResourceFor(gvk); ok {
			return served{r.GVR, r.Namespaced}
		}
	}
	return served{}
}

// SetServed records whether the server serves one of Kinds. Run calls it.
func (m *Mirror[T]) SetServed(served bool) {
	if !served {
		m.forget()
	}
	m.mu.Lock()
	m.state = State{Known: true, Served: served}
	m.mu.Unlock()
	m.tellState()
}

// Note records the outcome of a request. Run calls it.
func (m *Mirror[T]) Note(err error) {
	// A server serves a new kind about a second after discovery lists it, so for Kinds a NotFound
	// is not logged.
	if !apierrors.IsNotFound(err) || len(m.o.Kinds) == 0 {
		m.logOutcome(err)
	}
	m.mu.Lock()
	if category(err) != category(m.state.Err) {
		m.state.Err, m.since = err, time.Now()
	}
	lasted := time.Since(m.since)
	m.mu.Unlock()
	switch {
	case m.o.EmptyAfter > 0 && apierrors.IsNotFound(err) && lasted >= m.o.EmptyAfter && m.IsRead() && m.Len() > 0:
		m.log.Error("the server no longer knows the resource, its objects are gone")
		_ = m.Replace(nil, "") // an empty list cannot fail
	case m.o.ForgetAfter > 0 && Refused(err) && lasted >= m.o.ForgetAfter:
		m.forget()
	}
	m.tellState()
}

// tellState calls StateChanged if the State has changed since the last call.
func (m *Mirror[T]) tellState() {
	if m.o.StateChanged == nil {
		return
	}
	m.mu.Lock()
	now, before := m.stateLocked(), m.notified
	m.notified = now
	m.mu.Unlock()
	if now.Known != before.Known || now.Served != before.Served || now.Read != before.Read || category(now.Err) != category(before.Err) {
		m.o.StateChanged()
	}
}

// State returns the present State.
func (m *Mirror[T]) State() State {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.stateLocked()
}

func (m *Mirror[T]) stateLocked() State {
	s := m.state
	s.Read = isClosed(m.read)
	return s
}

// Ready returns nil once all objects have been read, and otherwise the reason why they have not.
func (m *Mirror[T]) Ready() error {
	switch s := m.State(); {
	case s.Read:
		return nil
	case s.Err != nil:
		return fmt.Errorf("%s: not read yet: %w", m.name, s.Err)
	default:
		return fmt.Errorf("%s: not read yet", m.name)
	}
}

// Settled is Ready for callers that can work without the objects: it also returns nil if the
// server does not serve the kind, or denies access.
func (m *Mirror[T]) Settled() error {
	if s := m.State(); s.Known && (!s.Served || Refused(s.Err)) {
		return nil
	}
	return m.Ready()
}

// Problem returns the reason why the objects of a kind that the server serves cannot be read, nil
// if they can.
func (m *Mirror[T]) Problem() error {
	if s := m.State(); s.Err != nil && !apierrors.IsNotFound(s.Err) {
		return fmt.Errorf("%s cannot be read: %w", m.name, s.Err)
	}
	return nil
}

// Get returns the item of an object.
func (m *Mirror[T]) Get(namespace, name string) (T, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	item, ok := m.items[namespace][name]
	return item, ok
}

// Len returns the number of objects.
func (m *Mirror[T]) Len() (n int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, items := range m.items {
		n += len(items)
	}
	return n
}

// Each calls f for all objects of a namespace, in any order. f must not call m.
func (m *Mirror[T]) Each(namespace string, f func(name string, item T)) {
	m.Inspect(namespace, func(items map[string]T) {
		for name, item := range items {
			f(name, item)
		}
	})
}

// EachNamespace calls f with the items of each namespace, by name, in any order. f must not
// modify the map or call m.
func (m *Mirror[T]) EachNamespace(f func(namespace string, items map[string]T)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for namespace, items := range m.items {
		f(namespace, items)
	}
}

// Inspect calls f with the items of a namespace, by name. f must not modify the map or call m.
func (m *Mirror[T]) Inspect(namespace string, f func(map[string]T)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	f(m.items[namespace])
}

// Read returns a channel that is closed once all objects have been read.
func (m *Mirror[T]) Read() <-chan struct{} {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.read
}

// IsRead reports whether all objects have been read.
func (m *Mirror[T]) IsRead() bool { return isClosed(m.Read()) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TakeChanged returns the names of the objects that may have changed since the last call, in any
// namespace. all means that any object may have changed. Options.Names has to be set.
func (m *Mirror[T]) TakeChanged() (names map[string]bool, all bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	names, all = m.names, m.all
	m.names, m.all = nil, false
	return names, all
}

// noteChanged records the name of an object that changes. m.mu is held.
func (m *Mirror[T]) noteChanged(name string) {
	if !m.o.Names {
		return
	}
	if m.names == nil {
		m.names = map[string]bool{}
	}
	m.names[name] = true
}

// forget removes all objects, and makes m unread.
func (m *Mirror[T]) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.items, m.all = nil, true
	if isClosed(m.read) {
		m.read = make(chan struct{})
	}
}

// kept is an object on its way into a Mirror, reduced to its name and item.
type kept[T any] struct {
	metav1.ObjectMeta
	item T
}

func (m *Mirror[T]) reduce(obj any) (*kept[T], error) {
	switch obj := obj.(type) {
	case *kept[T]:
		return obj, nil
	case *unstructured.Unstructured:
		namespace, name := obj.GetNamespace(), obj.GetName()
		old, _ := m.Get(namespace, name)
		return &kept[T]{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, item: m.o.Keep(obj, old)}, nil
	}
	return nil, fmt.Errorf("a %T is no object", obj)
}

// Transformer implements cache.TransformingStore: the reflector applies it to objects
// that wait for the rest of a first list.
func (m *Mirror[T]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return m.reduce(obj) }
}

// Add implements cache.ReflectorStore.
func (m *Mirror[T]) Add(obj any) error { return m.Update(obj) }

// Update implements cache.ReflectorStore.
func (m *Mirror[T]) Update(obj any) error {
	k, err := m.reduce(obj)
	if err != nil {
		return err
	}
	m.mu.Lock()
	if m.items == nil {
		m.items = map[string]map[string]T{}
	}
	put(m.items, k)
	m.noteChanged(k.Name)
	m.mu.Unlock()
	m.tellChanged()
	return nil
}

func put[T any](items map[string]map[string]T, k *kept[T]) {
	if items[k.Namespace] == nil {
		items[k.Namespace] = map[string]T{}
	}
	items[k.Namespace][k.Name] = k.item
}

// Delete implements cache.ReflectorStore.
func (m *Mirror[T]) Delete(obj any) error {
	u, ok := obj.(metav1.Object)
	if !ok {
		return fmt.Errorf("a %T is no object", obj)
	}
	m.mu.Lock()
	delete(m.items[u.GetNamespace()], u.GetName())
	if len(m.items[u.GetNamespace()]) == 0 {
		delete(m.items, u.GetNamespace())
	}
	m.noteChanged(u.GetName())
	m.mu.Unlock()
	m.tellChanged()
	return nil
}

// Replace implements cache.ReflectorStore.
func (m *Mirror[T]) Replace(objs []any, _ string) error {
	items := map[string]map[string]T{}
	for _, obj := range objs {
		k, err := m.reduce(obj)
		if err != nil {
			return err
		}
		put(items, k)
	}
	m.mu.Lock()
	m.items, m.all = items, true
	if !isClosed(m.read) {
		close(m.read)
	}
	m.mu.Unlock()
	m.tellChanged()
	m.tellState()
	return nil
}

// Resync implements cache.ReflectorStore.
func (m *Mirror[T]) Resync() error { return nil }

func (m *Mirror[T]) tellChanged() {
	if m.o.Changed != nil {
		m.o.Changed()
	}
}
