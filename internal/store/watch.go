package store

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
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

// watched is a mirror of one cluster-scoped resource, and how reading it is
// going. That the resource is not served, not yet or no longer, is a state like
// any other.
type watched[T any] struct {
	*mirror[T]
	resource schema.GroupVersionResource
	client   dynamic.Interface
	fields   string // a field selector
	log      *slog.Logger

	noting  sync.Mutex // of what follows
	err     error      // of the last call; nil while all is well
	missing time.Time  // since when the server does not know the resource; zero: it does
}

// newWatched takes what to keep of an object and whom to tell of changes.
func newWatched[T any](client dynamic.Interface, resource schema.GroupVersionResource, log *slog.Logger, keep func(*unstructured.Unstructured, T) T, changed func()) *watched[T] {
	w := &watched[T]{resource: resource, client: client, log: log.With("resource", resource.GroupResource().String())}
	w.mirror = newMirror(keep, changed)
	return w
}

// run follows the resource until ctx is done.
func (w *watched[T]) run(ctx context.Context) {
	followSome(ctx, w.client, w.resource, w.fields, w, w.note)
}

// note takes the outcome of a call.
func (w *watched[T]) note(err error) {
	w.noting.Lock()
	before := w.err
	w.err = err
	switch {
	case !apierrors.IsNotFound(err):
		w.missing = time.Time{}
	case w.missing.IsZero():
		w.missing = time.Now()
	}
	gone := !w.missing.IsZero() && time.Since(w.missing) >= goneAfter
	w.noting.Unlock()

	if manner(err) != manner(before) {
		if err != nil {
			w.log.Error("not reading", "error", err)
		} else {
			w.log.Info("reading again")
		}
	}
	if gone && w.isRead() && w.count() > 0 {
		w.log.Error("the server no longer knows the resource, its objects are gone")
		_ = w.Replace(nil, "") // which fails for what is no object
	}
}

// ready returns nil once all objects have been read.
func (w *watched[T]) ready() error {
	if w.isRead() {
		return nil
	}
	w.noting.Lock()
	defer w.noting.Unlock()
	if w.err != nil {
		return fmt.Errorf("%s: not read yet: %w", w.resource.GroupResource(), w.err)
	}
	return fmt.Errorf("%s: not read yet", w.resource.GroupResource())
}

// inspect calls f with what is kept, by name. f must not modify it nor call w.
func (w *watched[T]) inspect(f func(map[string]T)) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	f(w.items[""])
}

// count says how many objects there are.
func (w *watched[T]) count() (n int) {
	w.inspect(func(now map[string]T) { n = len(now) })
	return n
}
