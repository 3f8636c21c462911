package watch

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"reflect"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

const (
	// MinRetry and maxRetry bound the wait after a failure. client-go's own bound of 30 s is
	// meant for clusters with thousands of clients; mapd's policies have to take effect within a
	// second.
	MinRetry = 50 * time.Millisecond
	maxRetry = time.Second
	// MaxRefusedRetry bounds the wait after the server has denied access. Rights are granted by
	// people, so retrying every second is not needed.
	MaxRefusedRetry = 5 * time.Second
)

// Selection says which objects of a resource to read. The zero Selection is all of
// them.
type Selection struct {
	Namespace      string // empty: all namespaces, or the resource has none
	Fields, Labels string // field and label selectors
}

// Named selects one object.
func Named(namespace, name string) Selection {
	return Selection{Namespace: namespace, Fields: "metadata.name=" + name}
}

// withoutConnection is the type of the watch that client-go returns, without an error, if the
// connection breaks before the server answers.
var withoutConnection = reflect.TypeOf(apiwatch.NewEmptyWatch())

// follow lists and watches a resource into store until ctx is done. It calls note with the
// outcome of every request, nil for success, and retries soon after a failure.
func follow(ctx context.Context, client dynamic.Interface, gvr schema.GroupVersionResource, selection Selection, store cache.ReflectorStore, note func(error)) {
	client, health := unwrap(client)
	reading := health.begin(gvr.GroupResource().String())
	defer reading.end()
	var resource dynamic.ResourceInterface = client.Resource(gvr)
	if selection.Namespace != "" {
		resource = client.Resource(gvr).Namespace(selection.Namespace)
	}
	noteCall := func(err error) {
		// This is the server's answer to a resource version that is too old, as after a pause.
		// The reflector then lists again, so it is no failure.
		if ctx.Err() == nil && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			reading.note(err)
			note(err)
		}
	}
	reflector := cache.NewReflectorWithOptions(
		cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			// The reflector would list with a context that never ends.
			ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.FieldSelector, o.LabelSelector = selection.Fields, selection.Labels
				list, err := resource.List(ctx, o)
				noteCall(err)
				return list, err
			},
			WatchFuncWithContext: func(_ context.Context, o metav1.ListOptions) (apiwatch.Interface, error) {
				o.FieldSelector, o.LabelSelector = selection.Fields, selection.Labels
				events, err := resource.Watch(ctx, o)
				if err == nil && reflect.TypeOf(events) == withoutConnection {
					err = &net.OpError{Op: "watch", Err: syscall.ECONNRESET}
				}
				// A watch that begins with all objects (SendInitialEvents) may fail; the
				// reflector then lists.
				if err == nil || o.SendInitialEvents == nil {
					noteCall(err)
				}
				return events, err
			},
		}, client),
		&unstructured.Unstructured{}, store,
		cache.ReflectorOptions{
			Name:    gvr.GroupResource().String(),
			Backoff: &wait.Backoff{Duration: MinRetry, Factor: 2, Jitter: 0.2, Steps: 8, Cap: maxRetry},
		})
	silent := klog.NewContext(ctx, klog.Logger{}) // note logs instead
	delay := MinRetry
	for ctx.Err() == nil {
		start := time.Now()
		// Reflector.Run would wait and log in its own way.
		err := reflector.ListAndWatchWithContext(silent)
		limit := maxRetry
		if Refused(err) {
			limit = MaxRefusedRetry
		} else if err == nil || time.Since(start) > 10*maxRetry {
			delay = MinRetry // a watch ends normally after some minutes
		}
		Sleep(ctx, delay, nil, nil)
		delay = min(2*delay, limit)
	}
}

// Refused reports whether the server has denied access.
func Refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
}

// LogOutcomes returns a function that logs the outcome of a repeated call whenever it differs
// from the last one.
func LogOutcomes(log *slog.Logger) func(error) {
	var mu sync.Mutex
	var last string
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		now := category(err)
		switch {
		case now == last:
		case err != nil:
			log.Error("reading from the API server fails", "error", err)
		default:
			log.Info("reading from the API server works again")
		}
		last = now
	}
}

// category returns the same text for errors that need only one log line. Texts of network errors
// have port numbers, so they all differ.
func category(err error) string {
	if err == nil {
		return ""
	}
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	if n := (net.Error)(nil); errors.As(err, &n) {
		return "network"
	}
	return err.Error()
}
