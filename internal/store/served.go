package store

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/pkg/openapi"
)

// whenServed is a mirror of a kind that a cluster may or may not have. It reads
// for as long as the server serves the kind in one of some versions, and is empty
// while it does not.
type whenServed[T any] struct {
	*mirror[T]
	versions []schema.GroupVersionKind // the first one that is served is read
	fields   string                    // a field selector
	client   dynamic.Interface
	types    *openapi.Types
	tell     func(error) // logs what is news
	// look asks whether what is served has changed.
	look signal

	noting sync.Mutex // of what follows
	looked bool       // it is known whether the kind is served
	served bool
	err    error // of the last call
}

// newWhenServed takes the versions in which a kind is understood, the best one
// first, what to keep of an object, and whom to tell of changes.
func newWhenServed[T any](client dynamic.Interface, types *openapi.Types, log *slog.Logger, versions []schema.GroupVersionKind, keep func(*unstructured.Unstructured, T) T, changed func()) *whenServed[T] {
	return &whenServed[T]{
		mirror: newMirror(keep, changed), versions: versions, client: client, types: types,
		tell: outcome(log.With("kind", versions[0].GroupKind().String())), look: newSignal(),
	}
}

// run follows the kind until ctx is done.
func (w *whenServed[T]) run(ctx context.Context) {
	w.wait(ctx)
	for ctx.Err() == nil {
		now := w.resource()
		w.found(!now.Empty())
		reading, stop := context.WithCancel(ctx)
		var work sync.WaitGroup
		if !now.Empty() {
			work.Go(func() { followSome(reading, w.client, now, w.fields, w, w.note) })
		}
		for ctx.Err() == nil && w.resource() == now {
			w.wait(ctx)
		}
		stop()
		work.Wait()
	}
}

// wait waits until it may be served otherwise.
func (w *whenServed[T]) wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-w.look:
	}
}

// found takes in whether the kind is served. Objects read in one version stay until
// they have been read in another.
func (w *whenServed[T]) found(served bool) {
	if !served {
		w.forget()
	}
	w.noting.Lock()
	w.looked, w.served, w.err = true, served, nil
	w.noting.Unlock()
	w.changed()
}

// resource is the resource to read, zero if there is none.
func (w *whenServed[T]) resource() schema.GroupVersionResource {
	for _, gvk := range w.versions {
		if r, ok := w.types.ResourceFor(gvk); ok {
			return r.GVR
		}
	}
	return schema.GroupVersionResource{}
}

// note takes the outcome of a call.
func (w *whenServed[T]) note(err error) {
	// A server serves a new kind about a second after it says so.
	if !apierrors.IsNotFound(err) {
		w.tell(err)
	}
	w.noting.Lock()
	news := manner(err) != manner(w.err)
	w.err = err
	w.noting.Unlock()
	if news {
		w.changed()
	}
}

// ready returns nil once there is nothing to wait for: the objects have been read,
// there are none, or the server refuses to show them, which is nothing that
// passes.
func (w *whenServed[T]) ready() error {
	w.noting.Lock()
	defer w.noting.Unlock()
	switch name := w.versions[0].GroupKind(); {
	case w.looked && (!w.served || w.isRead() || refused(w.err)):
		return nil
	case w.err != nil:
		return fmt.Errorf("%s: not read yet: %w", name, w.err)
	default:
		return fmt.Errorf("%s: not read yet", name)
	}
}

// hidden says that the server has the kind, and that its objects have never been read.
func (w *whenServed[T]) hidden() bool {
	w.noting.Lock()
	defer w.noting.Unlock()
	return w.served && !w.isRead()
}

// problem says why objects cannot be read that the server has.
func (w *whenServed[T]) problem() error {
	w.noting.Lock()
	defer w.noting.Unlock()
	if w.err == nil || apierrors.IsNotFound(w.err) {
		return nil
	}
	return fmt.Errorf("%s cannot be read: %w", w.versions[0].GroupKind(), w.err)
}
