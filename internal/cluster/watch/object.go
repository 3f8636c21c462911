package watch

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic"
)

// ObjectOptions say which object to follow. All but Log and Changed are required.
type ObjectOptions struct {
	Client          dynamic.Interface
	Resource        schema.GroupVersionResource
	Namespace, Name string
	Log             *slog.Logger // nil: no log
	// Changed is called after every change, and after the first read. It must return soon.
	Changed func()
}

// Object has one object of the cluster, as a pointer to a Go type. It reads only that object, so
// it needs no right to others. With Observe, a caller passes the result of its own writes, so
// that Get never returns an older version. It is safe for concurrent use.
type Object[T metav1.Object] struct {
	o      ObjectOptions
	decode func(*unstructured.Unstructured) (T, error)

	mu      sync.Mutex
	current T
	exists  bool
	gone    types.UID     // of the last deleted object
	read    chan struct{} // closed after the first read
}

// NewObject returns an Object that has read nothing.
func NewObject[T any, P interface {
	*T
	metav1.Object
}](o ObjectOptions) *Object[P] {
	return &Object[P]{o: o, read: make(chan struct{}), decode: func(u *unstructured.Unstructured) (P, error) {
		obj := P(new(T))
		return obj, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, obj)
	}}
}

// Run follows the object until ctx is done.
func (o *Object[T]) Run(ctx context.Context) {
	log := o.o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	note := LogOutcomes(log.With("resource", o.o.Resource.GroupResource().String(), "name", o.o.Name))
	follow(ctx, o.o.Client, o.o.Resource, Named(o.o.Namespace, o.o.Name), o, note)
}

// Read returns a channel that is closed after the first read: from then on, Get returns nil only
// if the object does not exist.
func (o *Object[T]) Read() <-chan struct{} { return o.read }

// Name returns the name of the object.
func (o *Object[T]) Name() string { return o.o.Name }

// Get returns the object, nil if it does not exist or was not read. The caller must not modify
// it.
func (o *Object[T]) Get() T {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.current
}

// Observe stores an object that the server has returned, unless a newer version is known: the
// answer to a write can arrive after the watch has reported a deletion.
func (o *Object[T]) Observe(obj T) {
	if obj.GetName() != o.o.Name {
		return
	}
	o.mu.Lock()
	if obj.GetUID() != o.gone && (!o.exists || !Older(obj, o.current)) {
		o.current, o.exists = obj, true
	}
	o.mu.Unlock()
	o.o.Changed()
}

// Forget records that the object with a UID was deleted.
func (o *Object[T]) Forget(uid types.UID) {
	o.mu.Lock()
	o.gone = uid
	if o.exists && o.current.GetUID() == uid {
		var none T
		o.current, o.exists = none, false
	}
	o.mu.Unlock()
	o.o.Changed()
}

// Older reports whether a is an earlier version than b.
func Older(a, b metav1.Object) bool {
	return olderVersion(a.GetResourceVersion(), b.GetResourceVersion())
}

func olderVersion(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// Add implements cache.ReflectorStore.
func (o *Object[T]) Add(obj any) error { return o.Update(obj) }

// Update implements cache.ReflectorStore.
func (o *Object[T]) Update(obj any) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("a %T is no object", obj)
	}
	decoded, err := o.decode(u)
	if err != nil {
		return err
	}
	o.Observe(decoded)
	return nil
}

// Delete implements cache.ReflectorStore.
func (o *Object[T]) Delete(obj any) error {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("a %T is no object", obj)
	}
	if u.GetName() == o.o.Name {
		o.Forget(u.GetUID())
	}
	return nil
}

// Replace implements cache.ReflectorStore. If the list is older than the object, it does not
// prove that the object is gone.
func (o *Object[T]) Replace(objs []any, version string) error {
	found := false
	for _, obj := range objs {
		if err := o.Update(obj); err != nil {
			return err
		}
		u, _ := obj.(*unstructured.Unstructured)
		found = found || u.GetName() == o.o.Name
	}
	o.mu.Lock()
	var gone types.UID
	missing := !found && o.exists && !olderVersion(version, o.current.GetResourceVersion())
	if missing {
		gone = o.current.GetUID()
	}
	if !isClosed(o.read) {
		close(o.read)
	}
	o.mu.Unlock()
	if missing {
		o.Forget(gone)
	} else {
		o.o.Changed()
	}
	return nil
}

// Resync implements cache.ReflectorStore.
func (o *Object[T]) Resync() error { return nil }
