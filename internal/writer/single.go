package writer

import (
	"context"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// object is a pointer to an API type.
type object interface {
	comparable
	metav1.Object
}

// single is one object of the cluster, kept up to date by a watch on its name
// alone, so that no more permission is needed. What was written is known at once.
type single[T object] struct {
	name string
	tell func()

	mu      sync.Mutex
	current T         // nil: there is none
	last    types.UID // of the last one that went
}

func (s *single[T]) get() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// observe takes obj unless something newer is known. The answer to a write can come
// after the watch has reported that the object is gone.
func (s *single[T]) observe(obj T) {
	if obj.GetName() != s.name {
		return
	}
	s.mu.Lock()
	var none T
	if obj.GetUID() != s.last && (s.current == none || !older(obj, s.current)) {
		s.current = obj
	}
	s.mu.Unlock()
	s.tell()
}

func (s *single[T]) gone(obj T) {
	s.mu.Lock()
	var none T
	s.last = obj.GetUID()
	if s.current != none && s.current.GetUID() == s.last {
		s.current = none
	}
	s.mu.Unlock()
	s.tell()
}

func older(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order < 0
}

// watch keeps an object up to date until ctx is done. wait is for the first look.
func watch[T object](ctx context.Context, kube kubernetes.Interface, log *slog.Logger, s *single[T], of func(informers.SharedInformerFactory) cache.SharedIndexInformer) (wait cache.InformerSynced, stop func(), err error) {
	factory := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithTweakListOptions(func(l *metav1.ListOptions) {
		l.FieldSelector = fields.OneTermEqualSelector("metadata.name", s.name).String()
	}))
	informer := of(factory)
	if err := quiet(informer, log, s.name); err != nil {
		return nil, nil, err
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { s.observe(obj.(T)) },
		UpdateFunc: func(_, obj any) { s.observe(obj.(T)) },
		DeleteFunc: func(obj any) {
			if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = last.Obj
			}
			if obj, ok := obj.(T); ok {
				s.gone(obj)
			}
		},
	})
	if err != nil {
		return nil, nil, err
	}
	factory.Start(ctx.Done())
	return registration.HasSynced, factory.Shutdown, nil
}

// quiet has the reason why a watch does not work logged once for as long as it
// stays the same.
func quiet(informer cache.SharedInformer, log *slog.Logger, what string) error {
	var last string
	return informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if text := err.Error(); !apierrors.IsResourceExpired(err) && text != last {
			last = text
			log.Warn("an object cannot be watched", "name", what, "error", text)
		}
	})
}
