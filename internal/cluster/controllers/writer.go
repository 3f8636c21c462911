package controllers

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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/mapd-project/mapd/internal/cluster/certs"
	"github.com/mapd-project/mapd/internal/cluster/election"
	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/history"
	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
)

// Options configure a Writer. All but URL, Exempt, Timeout,
// User, Maintain, Counts, Audit, Existing and Log are required.
type Options struct {
	Kubernetes   kubernetes.Interface
	Dynamic      dynamic.Interface
	Store        *store.Store
	Certificates certs.Source
	// Maintain maintains the certificates while the lease is held; nil if somebody else does.
	// applied returns the bundle that the webhook configurations contain.
	Maintain func(ctx context.Context, applied func() []byte) error

	// Namespace is where the Lease is, whose holder is named by Identity. The namespace owns the
	// configurations: they are deleted with it, and not written while it is being deleted.
	Namespace, Lease, Identity string
	// API servers reach mapd by a Service in the namespace or, if URL is not empty, by the URL.
	// ServicePort 0 means 443.
	Service     string
	ServicePort int32
	URL         string
	// Exempt are namespaces to which no policy applies, besides mapd's own.
	Exempt []string
	// Timeout is how long an API server waits for an answer, in whole seconds; 0
	// means 5.
	Timeout time.Duration
	// User is the name by which the API server knows mapd. Its requests are not mutated.
	User string
	// Adopt lets the Writer take the configurations from another installation, once.
	Adopt bool
	// Features are those of the Store.
	Features []feature.Feature
	// Counts returns the counts of this replica. If it is nil, no counts are written.
	Counts func() []history.Counted

	// Audit runs while the lease is held: from time to time, it evaluates the policies on all
	// existing objects, and calls write with the new data of the ConfigMap AuditName. It returns
	// when ctx is done. If it is nil, there are no audits.
	Audit func(ctx context.Context, write func(ctx context.Context, data map[string]string) error)

	// Existing has the part of bindings' statuses about existing objects; nil: statuses have no
	// such part.
	Existing *Existing

	// Ready returns the reason why this replica cannot answer requests, nil if it can.
	Ready func() error
	Log   *slog.Logger // nil: no log
}

// AuditName is the ConfigMap in mapd's namespace with the totals of the last audit.
const AuditName = "mapd-audit"

// Writer writes what one replica has to write, see the package comment.
type Writer struct {
	o   Options
	log *slog.Logger
	// published, reported, tripped, voided and listed are notified of snapshots: one channel for
	// each task, and in listed one for each feature.
	published, reported, tripped, voided, certificates <-chan struct{}
	listed                                             []<-chan struct{}

	// passive is the installation that owns the configurations, if it is not this one. owned:
	// they belonged to this one before.
	passive atomic.Pointer[webhookconfig.Installation]
	owned   bool
	// exempting is set while exemptOwnRequests runs.
	exempting atomic.Bool
	// totals are the counts of all replicas when this one last added them up. counted is notified
	// after that.
	totals  atomic.Pointer[map[history.Pair]*history.Counted]
	counted watch.Signal

	lease *election.Lease
	late  func() bool // lease.Late
}

// New returns a Writer that is not running.
func New(o Options) *Writer {
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	w := &Writer{o: o, log: log, counted: watch.NewSignal()}
	w.lease = &election.Lease{Kubernetes: o.Kubernetes, Namespace: o.Namespace, Name: o.Lease, Identity: o.Identity, Labels: labels()}
	w.late = w.lease.Late
	return w
}

// Run takes part in the election and writes while it holds the lease, until ctx
// is done; then it releases the lease. A Writer runs once.
func (w *Writer) Run(ctx context.Context) error {
	changed := w.o.Store.Changed
	w.published, w.reported, w.tripped, w.voided = changed(), changed(), changed(), changed()
	for range w.o.Features {
		w.listed = append(w.listed, changed())
	}
	w.certificates = w.o.Certificates.Changed()
	storing, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { w.storeTrips(storing) })
	if w.o.Counts != nil {
		work.Go(func() { w.publishCounts(storing) })
	}
	defer work.Wait()
	defer stop()
	return w.lead(ctx, func(ctx context.Context) {
		if err := w.runTerm(ctx); err != nil && ctx.Err() == nil {
			w.log.Error("writing the webhook configurations, certificates and status ended", "error", err)
		}
	})
}

// term is the time during which this replica holds the lease, with what it watches for that.
type term struct {
	*Writer
	namespace             *watch.Object[*corev1.Namespace]
	namespaceChanged      watch.Signal
	configurations        []*configuration
	configurationsChanged watch.Signal
	endpoints             *watch.Mirror[*discoveryv1.EndpointSlice] // nil: API servers reach mapd by a URL
	events                *events
}

// runTerm writes until ctx is done, which ends with the lease.
func (w *Writer) runTerm(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	t := &term{Writer: w, namespaceChanged: watch.NewSignal(), configurationsChanged: watch.NewSignal()}
	t.namespace = watch.NewObject[corev1.Namespace](w.object(corev1.SchemeGroupVersion.WithResource("namespaces"), w.o.Namespace, t.namespaceChanged.Notify))
	mutating, validating := w.webhookConfigurations(t.configurationsChanged.Notify)
	t.configurations = w.configurations(mutating, validating)

	type source interface {
		Run(ctx context.Context)
		Read() <-chan struct{}
	}
	sources := []source{t.namespace, mutating, validating}
	if w.o.URL == "" {
		t.endpoints = w.endpointSlices()
		sources = append(sources, t.endpoints)
	}
	for _, s := range sources {
		watching.Go(func() { s.Run(ctx) })
	}
	// An object counts as absent only after its source has listed all objects.
	for _, s := range sources {
		select {
		case <-ctx.Done():
			return nil
		case <-s.Read():
		}
	}
	var err error
	if t.events, err = newEvents(ctx, w.o.Kubernetes, w.log); err != nil {
		return err
	}
	defer t.events.stop()
	t.run(ctx)
	return nil
}

// object returns the options to watch one cluster-scoped object.
func (w *Writer) object(resource schema.GroupVersionResource, name string, changed func()) watch.ObjectOptions {
	return watch.ObjectOptions{Client: w.o.Dynamic, Resource: resource, Name: name, Log: w.log, Changed: changed}
}

// webhookConfigurations returns both configurations, before they are read.
func (w *Writer) webhookConfigurations(changed func()) (
	mutating *watch.Object[*admissionregistrationv1.MutatingWebhookConfiguration],
	validating *watch.Object[*admissionregistrationv1.ValidatingWebhookConfiguration],
) {
	gv := admissionregistrationv1.SchemeGroupVersion
	return watch.NewObject[admissionregistrationv1.MutatingWebhookConfiguration](
			w.object(gv.WithResource("mutatingwebhookconfigurations"), webhookconfig.ConfigurationName, changed)),
		watch.NewObject[admissionregistrationv1.ValidatingWebhookConfiguration](
			w.object(gv.WithResource("validatingwebhookconfigurations"), webhookconfig.ValidationName, changed))
}

// endpointSlices returns a mirror of the Service's EndpointSlices.
func (w *Writer) endpointSlices() *watch.Mirror[*discoveryv1.EndpointSlice] {
	return watch.New(watch.Options[*discoveryv1.EndpointSlice]{
		Client: w.o.Dynamic, Log: w.log, Resource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"),
		Selection: watch.Selection{Namespace: w.o.Namespace, Labels: discoveryv1.LabelServiceName + "=" + w.o.Service},
		Keep: func(u *unstructured.Unstructured, _ *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
			s := &discoveryv1.EndpointSlice{}
			if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s) != nil {
				return &discoveryv1.EndpointSlice{} // counts as a slice without endpoints
			}
			return s
		},
	})
}

// run writes while the namespace exists, until ctx is done.
func (t *term) run(ctx context.Context) {
	logged := false
	for ctx.Err() == nil {
		ns := t.namespace.Get()
		if ns != nil && ns.DeletionTimestamp == nil {
			logged = false
			t.runInNamespace(ctx, ns)
			continue
		}
		if !logged {
			logged = true
			t.log.Info("nothing is written while mapd's namespace is missing or being deleted", "namespace", t.o.Namespace)
		}
		t.namespaceChanged.Wait(ctx)
	}
}

// runInNamespace starts all tasks, and stops them when the namespace is being deleted or was
// replaced.
func (t *term) runInNamespace(ctx context.Context, ns *corev1.Namespace) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	if t.o.Maintain != nil {
		// A passive installation has a certificate too, so that it can take over.
		work.Go(func() { t.maintainCertificates(ctx) })
	}
	work.Go(func() {
		for ctx.Err() == nil {
			t.waitUntilOwner(ctx)
			t.writeAsOwner(ctx, ns)
		}
	})
	for t.namespaceChanged.Wait(ctx) {
		if now := t.namespace.Get(); now == nil || now.UID != ns.UID || now.DeletionTimestamp != nil {
			return
		}
	}
}

// writeAsOwner does all writes except those of certificates, until ctx is done or the
// configurations belong to another installation.
func (t *term) writeAsOwner(ctx context.Context, ns *corev1.Namespace) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { t.writeStatuses(ctx, t.events) })
	work.Go(func() { t.clearTrips(ctx) })
	if t.o.Counts != nil {
		work.Go(func() { t.keepTotals(ctx) })
	}
	work.Go(func() { t.cleanRecords(ctx) })
	for i, f := range t.o.Features {
		work.Go(func() { t.keepListing(ctx, i, t.listed[i], t.events) })
		if f, ok := f.(feature.Controlled); ok {
			work.Go(func() { f.Control(ctx, ns) })
		}
	}
	if t.o.Audit != nil {
		work.Go(func() {
			t.o.Audit(ctx, func(ctx context.Context, data map[string]string) error {
				_, err := t.writeConfigMap(ctx, AuditName, data)
				return err
			})
		})
	}
	t.keepConfigurations(ctx, ns)
}

// maintainCertificates runs Options.Maintain, and starts it again after a failure.
func (t *term) maintainCertificates(ctx context.Context) {
	var tries attempts
	steps := 0
	applied := func() []byte {
		// This function is called once per step, so the step before has succeeded.
		if steps++; steps > 1 {
			tries.ended(nil, retryMost)
		}
		if t.passive.Load() != nil {
			return nil
		}
		return applied(t.configurations)
	}
	for {
		steps = 0
		err := t.o.Maintain(ctx, applied)
		if ctx.Err() != nil {
			return
		}
		wait, news := tries.ended(err, retryMost)
		if news {
			t.log.Error("certificates cannot be maintained; what is served stays", "error", err)
			t.events.warn(t.leaseReference(), "CertificateNotRenewed", "Renew", err.Error())
		}
		if !watch.Sleep(ctx, max(wait, retryFirst), nil, nil) {
			return
		}
	}
}

// leaseReference returns the object of events that concern the whole installation.
func (w *Writer) leaseReference() corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: w.o.Namespace, Name: w.o.Lease}
}

// replicas reports whether the Service has an endpoint that can answer, and whether all endpoints
// belong to the ReplicaSet of this replica, see oneTemplate.
func (t *term) replicas() (ready, alike bool) {
	if t.endpoints == nil {
		return true, true
	}
	var all []*discoveryv1.EndpointSlice
	t.endpoints.Each(t.o.Namespace, func(_ string, s *discoveryv1.EndpointSlice) { all = append(all, s) })
	pod, _, _ := strings.Cut(t.o.Identity, "_")
	return anyReady(all), oneTemplate(all, pod)
}
