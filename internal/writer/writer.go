package writer

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/mapd-project/mapd/internal/certs"
	"github.com/mapd-project/mapd/internal/store"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// Options configure a Writer. All but URL, Exempt, Timeout,
// User, Maintain and Log are required.
type Options struct {
	Kubernetes   kubernetes.Interface
	Dynamic      dynamic.Interface
	Store        *store.Store
	Certificates certs.Source
	// Maintain looks after the certificates while the lease is held; nil if
	// somebody else does. applied is the bundle that the webhook configurations hold.
	Maintain func(ctx context.Context, applied func() []byte) error

	// Namespace holds the lease, whose holder is named by Identity. The
	// configurations belong to it: they go with it, and while it goes they are left
	// alone.
	Namespace, Lease, Identity string
	// API servers reach us at a Service of the namespace or, if it is not
	// empty, at a URL. ServicePort 0 means 443.
	Service     string
	ServicePort int32
	URL         string
	// Exempt are namespaces that no policy applies to, besides our own.
	Exempt []string
	// Timeout is how long an API server waits for an answer, in whole seconds; 0
	// means 5.
	Timeout time.Duration
	// User is who we are to the API server; our own requests are not mutated.
	User string
	// Adopt lets the writer take the configurations from another installation, once.
	Adopt bool
	// Mutators says that the Store runs Gatekeeper's mutators; Native, that it moves
	// them into policies or back, and these are written or deleted.
	Mutators, Native bool

	// Ready says why this replica cannot answer requests.
	Ready func() error
	Log   *slog.Logger // nil: no log
}

// Writer writes for one replica.
type Writer struct {
	o   Options
	log *slog.Logger
	// Three who hear of snapshots, and one of certificates.
	published, reported, listed, certificates <-chan struct{}
	native                                    *Native       // nil: no policies are written
	moved                                     chan struct{} // the list hears of the native

	// passive is the installation that the configurations belong to, if it is not
	// this one; owned says that they were this one's before.
	passive atomic.Pointer[webhook.Installation]
	owned   bool
	// unblocking is set while unblock runs.
	unblocking atomic.Bool
}

// New returns a Writer that has not begun.
func New(o Options) *Writer {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	w := &Writer{o: o, log: log, moved: make(chan struct{}, 1)}
	if o.Native {
		w.native = NewNative(NativeOptions{Dynamic: o.Dynamic, Store: o.Store, Namespace: o.Namespace, Log: log, Told: func() {
			select {
			case w.moved <- struct{}{}:
			default:
			}
		}})
	}
	return w
}

// Run takes part in the election and writes while it holds the lease, until ctx
// is done. The lease is given up then. A Writer runs once.
func (w *Writer) Run(ctx context.Context) error {
	w.published, w.reported, w.listed = w.o.Store.Changed(), w.o.Store.Changed(), w.o.Store.Changed()
	w.certificates = w.o.Certificates.Changed()
	return w.lead(ctx, func(ctx context.Context) {
		if err := w.hold(ctx); err != nil && ctx.Err() == nil {
			w.log.Error("stopped writing", "error", err)
		}
	})
}

// hold does all there is to do while the lease is held.
func (w *Writer) hold(ctx context.Context) error {
	wake := make(chan struct{}, 1)
	tell := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	// Of the namespace and of what is in it as to configurations, each has to be
	// known before anything is concluded from its absence.
	moved := make(chan struct{}, 1)
	namespace := &single[*corev1.Namespace]{name: w.o.Namespace, tell: func() {
		select {
		case moved <- struct{}{}:
		default:
		}
	}}
	mutating := &single[*admissionregistrationv1.MutatingWebhookConfiguration]{name: webhook.ConfigurationName, tell: tell}
	validating := &single[*admissionregistrationv1.ValidatingWebhookConfiguration]{name: webhook.ValidationName, tell: tell}
	ctx, cancel := context.WithCancel(ctx)
	var synced []cache.InformerSynced
	add := func(has cache.InformerSynced, stop func(), err error) (func(), error) {
		synced = append(synced, has)
		return stop, err
	}
	stop, err := add(watch(ctx, w.o.Kubernetes, w.log, namespace, func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Core().V1().Namespaces().Informer()
	}))
	if err != nil {
		cancel()
		return err
	}
	defer stop()
	stop, err = add(watch(ctx, w.o.Kubernetes, w.log, mutating, func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Admissionregistration().V1().MutatingWebhookConfigurations().Informer()
	}))
	if err != nil {
		cancel()
		return err
	}
	defer stop()
	stop, err = add(watch(ctx, w.o.Kubernetes, w.log, validating, func(f informers.SharedInformerFactory) cache.SharedIndexInformer {
		return f.Admissionregistration().V1().ValidatingWebhookConfigurations().Informer()
	}))
	if err != nil {
		cancel()
		return err
	}
	defer stop()
	endpoints := func() (ready, alike bool) { return true, true }
	if w.o.URL == "" {
		var has cache.InformerSynced
		endpoints, has, stop, err = w.endpoints(ctx)
		if err != nil {
			cancel()
			return err
		}
		defer stop()
		synced = append(synced, has)
	}
	// Informers are waited for after they have been stopped.
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), synced...) {
		return nil
	}
	out, err := newEvents(ctx, w.o.Kubernetes, w.log)
	if err != nil {
		return err
	}
	defer out.stop()
	configurations := w.configurations(mutating, validating)

	told := false
	for ctx.Err() == nil {
		ns := namespace.get()
		if ns == nil || ns.DeletionTimestamp != nil {
			if !told {
				told = true
				w.log.Info("nothing is written while the namespace is going or gone", "namespace", w.o.Namespace)
			}
			select {
			case <-ctx.Done():
			case <-moved:
			}
			continue
		}
		told = false
		w.inhabit(ctx, ns, moved, namespace, configurations, endpoints, wake, out)
	}
	return nil
}

// inhabit does what there is to do for as long as the namespace is what it is.
func (w *Writer) inhabit(ctx context.Context, ns *corev1.Namespace, moved <-chan struct{}, namespace *single[*corev1.Namespace],
	configurations []*configuration, endpoints func() (ready, alike bool), wake <-chan struct{}, out *events) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	if w.o.Maintain != nil {
		// A passive installation has a certificate too, so that it can take over.
		work.Go(func() {
			w.maintain(ctx, func() []byte {
				if w.passive.Load() != nil {
					return nil
				}
				return applied(configurations)
			}, out)
		})
	}
	work.Go(func() {
		for ctx.Err() == nil {
			w.await(ctx, configurations, wake, out)
			w.write(ctx, ns, configurations, endpoints, wake, out)
		}
	})
	for {
		select {
		case <-ctx.Done():
			return
		case <-moved:
		}
		if now := namespace.get(); now == nil || now.UID != ns.UID || now.DeletionTimestamp != nil {
			return
		}
	}
}

// write writes all but certificates, until ctx is done or the configurations are
// another installation's.
func (w *Writer) write(ctx context.Context, ns *corev1.Namespace, configurations []*configuration, endpoints func() (ready, alike bool), wake <-chan struct{}, out *events) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { w.report(ctx, out) })
	if w.o.Mutators {
		work.Go(func() { w.list(ctx, out) })
	}
	if w.native != nil {
		work.Go(func() { w.native.Run(ctx, ns) })
	}
	w.keep(ctx, configurations, ns, endpoints, wake, out)
}

// maintain has the certificates looked after, and begins again when that was not
// possible.
func (w *Writer) maintain(ctx context.Context, applied func() []byte, out *events) {
	wait, last := retryFirst, ""
	for {
		began := time.Now()
		err := w.o.Maintain(ctx, applied)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > retryMost {
			wait = retryFirst
		}
		if err != nil && err.Error() != last {
			last = err.Error()
			w.log.Error("certificates cannot be maintained; what is served stays", "error", err)
			out.warn(corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: w.o.Namespace, Name: w.o.Lease},
				"CertificateNotRenewed", "Renew", last)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, retryMost)
	}
}

// endpoints says whether the Service has an endpoint that can answer, and whether all
// of them are replicas like this one.
func (w *Writer) endpoints(ctx context.Context) (func() (ready, alike bool), cache.InformerSynced, func(), error) {
	pod, _, _ := strings.Cut(w.o.Identity, "_")
	selector := apilabels.SelectorFromSet(apilabels.Set{discoveryv1.LabelServiceName: w.o.Service})
	factory := informers.NewSharedInformerFactoryWithOptions(w.o.Kubernetes, 0, informers.WithNamespace(w.o.Namespace),
		informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = selector.String() }))
	endpointSlices := factory.Discovery().V1().EndpointSlices()
	if err := quiet(endpointSlices.Informer(), w.log, w.o.Service); err != nil {
		return nil, nil, nil, err
	}
	lister := endpointSlices.Lister()
	factory.Start(ctx.Done())
	return func() (ready, alike bool) {
		all, err := lister.List(apilabels.Everything())
		return err == nil && anyReady(all), err == nil && oneTemplate(all, pod)
	}, endpointSlices.Informer().HasSynced, factory.Shutdown, nil
}
