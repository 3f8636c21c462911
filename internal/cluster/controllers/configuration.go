package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/store"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
)

const (
	fieldManager = "mapd"

	// retryFirst and retryMost bound the wait after the API server has refused a configuration.
	retryFirst = time.Second
	retryMost  = 30 * time.Second
	// lookEvery is how often to check for changes that send no notification: a replica that has
	// become ready, or a bundle in a file.
	lookEvery = 250 * time.Millisecond
	// pace is the minimum time between two writes of one configuration. If another writer keeps
	// changing the configuration, the time doubles with each repair, up to paceMost. It is pace
	// again after quarrelOver without a repair.
	pace        = 50 * time.Millisecond
	paceMost    = time.Second
	quarrelOver = 10 * time.Second
)

func labels() map[string]string {
	return map[string]string{"app.kubernetes.io/name": "mapd", "app.kubernetes.io/part-of": "mapd"}
}

// configuration is one of the two webhook configurations.
type configuration struct {
	name, kind string
	validating bool
	// get returns the stored configuration; ok is false if there is none.
	get func() (metav1.ObjectMeta, []entry, bool)
	// create makes a configuration that does not exist, by server-side apply: the
	// right to create it is bound to its name, which other ways of creating lack.
	create func(ctx context.Context, data []byte) error
	// replace writes the whole configuration, provided that it still has the resourceVersion in
	// meta. A server-side apply would be refused if somebody has added a contradiction, such as a
	// url beside a service, and would keep fields of other managers.
	replace func(ctx context.Context, meta metav1.ObjectMeta, entries []entry) error

	// keepConfigurations resets the following fields.
	desired  []entry
	waiting  bool // for a ready replica
	failed   error
	retry    time.Duration
	next     time.Time // no write before
	written  []entry   // the entries of the last write
	repaired time.Time // the time of the last write that undid somebody else's change
	patience time.Duration
}

// configurationClient has the methods that are used of a typed client.
type configurationClient[T any] interface {
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (T, error)
	Update(ctx context.Context, object T, o metav1.UpdateOptions) (T, error)
}

// newConfiguration returns a configuration that live reads and client writes. parts returns the
// metadata and the entries of an object, and build creates an object from them.
func newConfiguration[T interface {
	comparable
	metav1.Object
}](kind string, live *watch.Object[T], client configurationClient[T], parts func(T) (metav1.ObjectMeta, []entry), build func(metav1.ObjectMeta, []entry) T) *configuration {
	observe := func(c T, err error) error {
		if err == nil {
			live.Observe(c)
		}
		return err
	}
	return &configuration{
		name: live.Name(), kind: kind,
		get: func() (meta metav1.ObjectMeta, entries []entry, exists bool) {
			var none T
			if c := live.Get(); c != none {
				meta, entries = parts(c)
				return meta, entries, true
			}
			return meta, nil, false
		},
		create: func(ctx context.Context, data []byte) error {
			return observe(client.Patch(ctx, live.Name(), types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: fieldManager, Force: new(true)}))
		},
		replace: func(ctx context.Context, meta metav1.ObjectMeta, entries []entry) error {
			return observe(client.Update(ctx, build(meta, entries), metav1.UpdateOptions{FieldManager: fieldManager}))
		},
	}
}

func (w *Writer) configurations(mutating *watch.Object[*admissionregistrationv1.MutatingWebhookConfiguration], validating *watch.Object[*admissionregistrationv1.ValidatingWebhookConfiguration]) []*configuration {
	client := w.o.Kubernetes.AdmissionregistrationV1()
	v := newConfiguration("ValidatingWebhookConfiguration", validating, client.ValidatingWebhookConfigurations(),
		func(c *admissionregistrationv1.ValidatingWebhookConfiguration) (metav1.ObjectMeta, []entry) {
			return c.ObjectMeta, fromValidating(c.Webhooks)
		},
		func(meta metav1.ObjectMeta, entries []entry) *admissionregistrationv1.ValidatingWebhookConfiguration {
			return &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: toValidating(entries)}
		})
	v.validating = true
	m := newConfiguration("MutatingWebhookConfiguration", mutating, client.MutatingWebhookConfigurations(),
		func(c *admissionregistrationv1.MutatingWebhookConfiguration) (metav1.ObjectMeta, []entry) {
			return c.ObjectMeta, c.Webhooks
		},
		func(meta metav1.ObjectMeta, entries []entry) *admissionregistrationv1.MutatingWebhookConfiguration {
			return &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: entries}
		})
	return []*configuration{v, m}
}

// base returns an entry with the fields that all entries have in common.
func (w *Writer) base() entry {
	e := entry{
		TimeoutSeconds:    new(timeoutSeconds(w.o.Timeout)),
		NamespaceSelector: webhookconfig.Exempt(append([]string{w.o.Namespace}, w.o.Exempt...)),
		MatchConditions:   webhookconfig.MatchConditions(w.o.User),
	}
	if w.o.URL != "" {
		e.ClientConfig.URL = &w.o.URL
	} else {
		port := w.o.ServicePort
		if port == 0 {
			port = 443
		}
		e.ClientConfig.Service = &admissionregistrationv1.ServiceReference{Namespace: w.o.Namespace, Name: w.o.Service, Port: &port}
	}
	return e
}

// timeoutSeconds returns d in the seconds that a server accepts: 1 to 30. 0 means 5.
func timeoutSeconds(d time.Duration) int32 {
	if d <= 0 {
		return 5
	}
	return int32(min(30, max(1, math.Ceil(d.Seconds()))))
}

// asked is the input from which entries are derived.
type asked struct {
	entries []*webhookconfig.Entry
	// states are those of Options.Features.
	states []feature.State
	// needs are the entries of the states, without the common fields, for comparison.
	needs []entry
}

// askedBy returns the input for the entries of a snapshot. before is the input for the last
// snapshot.
func (w *Writer) askedBy(s *store.Snapshot, before asked) asked {
	a := asked{entries: s.Entries, states: s.States}
	if slices.Equal(a.states, before.states) {
		a.needs = before.needs
		return a
	}
	for _, state := range a.states {
		if state == nil {
			a.needs = append(a.needs, entry{}) // unequal to any entries
			continue
		}
		for _, validating := range []bool{true, false} {
			a.needs = append(a.needs, state.Entries(validating, entry{})...)
		}
	}
	return a
}

func (a asked) equal(b asked) bool {
	return slices.Equal(a.entries, b.entries) && apiequality.Semantic.DeepEqual(a.needs, b.needs)
}

// featureEntries returns the entries of all features. The entries of a feature whose state is not
// known yet stay as they are in c.
func (w *Writer) featureEntries(c *configuration, a asked, base entry) (out []entry) {
	for i, f := range w.o.Features {
		if state := a.states[i]; state != nil {
			out = append(out, state.Entries(c.validating, base)...)
			continue
		}
		_, live, _ := c.get()
		for _, e := range live {
			if f.Owns(e.Name) {
				e.ClientConfig.CABundle = base.ClientConfig.CABundle
				out = append(out, e)
			}
		}
	}
	return out
}

// derive sets the desired entries of both configurations, with bundle as their authorities.
//
// While replicas are of different ReplicaSets (alike is false), they may be of different releases.
// Then each group has one entry: an older release may not serve the paths of a group's parts, and
// all releases serve the path of the whole group.
func (w *Writer) derive(configurations []*configuration, a asked, bundle []byte, alike bool) {
	if !alike {
		a.entries = webhookconfig.Undivide(a.entries)
	}
	base := w.base()
	base.ClientConfig.CABundle = bundle
	for _, c := range configurations {
		var desired []entry
		if c.validating {
			desired = fromValidating(webhookconfig.ValidationConfiguration(admissionregistrationv1.ValidatingWebhook{
				ClientConfig: base.ClientConfig, TimeoutSeconds: base.TimeoutSeconds,
				MatchConditions: webhookconfig.NotItself(w.o.User),
			}).Webhooks)
		} else {
			desired = webhookconfig.Configuration(a.entries, base).Webhooks
		}
		desired = append(desired, w.featureEntries(c, a, base)...)
		for i := range desired {
			desired[i] = withDefaults(desired[i], c.validating)
		}
		if !same(desired, c.desired) {
			c.desired, c.next, c.retry = desired, time.Time{}, 0
		}
	}
}

// derivation has the input from which the desired configurations were last derived.
type derivation struct {
	snapshot     *store.Snapshot
	asked        asked
	bundle       []byte
	ready, alike bool // of replicas
}

// updateDesired derives the desired configurations again if the input has changed, and reports
// whether the configurations may have to be written.
func (t *term) updateDesired(d *derivation) (changed bool) {
	stale := false
	if s := t.o.Store.Snapshot(); s != nil && s != d.snapshot {
		now := t.askedBy(s, d.asked)
		stale = d.snapshot == nil || !now.equal(d.asked)
		d.snapshot, d.asked = s, now
	}
	if b := t.o.Certificates.Bundle(); !bytes.Equal(b, d.bundle) {
		d.bundle, stale = b, true
	}
	ready, alike := t.replicas()
	if ready = ready && t.o.Ready() == nil; ready != d.ready {
		d.ready, changed = ready, true
	}
	if alike != d.alike {
		d.alike, stale = alike, true
	}
	if stale && d.snapshot != nil {
		t.derive(t.configurations, d.asked, d.bundle, d.alike)
		changed = true
	}
	return changed
}

// keepConfigurations writes the configurations whenever they differ from the desired ones. It
// returns when ctx is done, or when they belong to another installation.
func (t *term) keepConfigurations(ctx context.Context, namespace *corev1.Namespace) {
	// The state of an earlier term is not valid any more.
	for _, c := range t.configurations {
		c.desired, c.written, c.retry, c.next, c.failed, c.waiting = nil, nil, 0, time.Time{}, nil, false
	}
	d := &derivation{alike: true}
	for ticked := false; ctx.Err() == nil; {
		now := time.Now()
		changed := t.updateDesired(d) || !ticked
		for _, c := range t.configurations {
			if d.snapshot == nil || !changed && c.next.IsZero() || now.Before(c.next) {
				continue
			}
			if _, ok := t.foreignOwner(ctx, t.configurations); ok {
				return
			}
			t.reconcile(ctx, c, namespace, d.ready, t.events)
		}
		pause := lookEvery
		for _, c := range t.configurations {
			if wait := time.Until(c.next); wait > 0 {
				pause = min(pause, wait)
			}
		}
		timer := time.NewTimer(pause)
		ticked = false
		select {
		case <-ctx.Done():
		case <-t.configurationsChanged:
		case <-t.published:
		case <-t.certificates:
		case <-timer.C:
			ticked = true
		}
		timer.Stop()
	}
}

// reconcile makes one configuration equal to the desired one.
func (w *Writer) reconcile(ctx context.Context, c *configuration, namespace *corev1.Namespace, ready bool, report *events) {
	now := time.Now()
	meta, live, exists := c.get()
	if i := webhookconfig.InstallationOf(meta); !ready && i.Namespace != "" && !i.Is(w.installation()) {
		c.next = now.Add(lookEvery) // the new owner has to be able to answer first
		return
	}
	present := make([]entry, 0, len(live))
	for _, e := range live {
		present = append(present, withDefaults(e, c.validating))
	}
	want, waiting := plan(w.withTrust(c.desired, present), present, ready)
	if waiting && !c.waiting {
		w.log.Info("webhook entries are not added before a replica is ready", "configuration", c.name)
	}
	c.waiting = waiting
	c.next = time.Time{}
	wantMeta := w.desiredMeta(meta, namespace)
	if !exists && len(want) == 0 || exists && same(want, present) && apiequality.Semantic.DeepEqual(meta, wantMeta) {
		c.failed, c.retry = nil, 0
		return
	}
	if w.late() {
		return
	}
	var err error
	if exists {
		err = c.replace(ctx, wantMeta, want)
	} else {
		var data []byte
		if data, err = c.encode(wantMeta, want); err == nil {
			err = c.create(ctx, data)
		}
	}
	switch {
	case ctx.Err() != nil:
	case err == nil:
		w.log.Info("webhook configuration written", "configuration", c.name, "entries", names(want))
		c.failed, c.retry = nil, 0
		c.next = now.Add(c.pauseAfterWrite(now, want)) // to check the result
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || exists && apierrors.IsNotFound(err):
		w.log.Debug("somebody else wrote the webhook configuration; reading it again", "configuration", c.name)
		c.next = now.Add(pace)
	default:
		c.retry = min(retryMost, max(retryFirst, 2*c.retry))
		c.next = now.Add(c.retry)
		if c.failed == nil || c.failed.Error() != err.Error() {
			w.log.Error("webhook configuration not written; the previous one stays", "configuration", c.name, "error", err)
			report.warn(corev1.ObjectReference{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: c.kind, Name: c.name, UID: meta.UID},
				"ConfigurationRefused", "Configure", err.Error())
		}
		c.failed = err
	}
}

// withTrust returns the desired entries. While mapd's own authority is not known, they get the
// caBundle of the present entries, so that API servers continue to trust what they trust now.
func (w *Writer) withTrust(desired, present []entry) []entry {
	if w.o.Maintain == nil {
		return desired
	}
	desired = slices.Clone(desired)
	for i, d := range desired {
		if l := slices.IndexFunc(present, func(l entry) bool { return l.Name == d.Name }); l >= 0 && len(d.ClientConfig.CABundle) == 0 {
			desired[i].ClientConfig.CABundle = present[l].ClientConfig.CABundle
		}
	}
	return desired
}

// pauseAfterWrite returns how long to wait after a write of entries. If the last write had the
// same entries, this one undid somebody else's change, and the pause is longer.
func (c *configuration) pauseAfterWrite(now time.Time, entries []entry) time.Duration {
	again := same(entries, c.written)
	c.written = entries
	switch {
	case !again:
		return pace
	case now.Sub(c.repaired) > quarrelOver:
		c.patience = pace
	default:
		c.patience = min(2*c.patience, paceMost)
	}
	c.repaired = now
	return c.patience
}

func names(entries []entry) []string {
	out := make([]string, 0, len(entries))
	for _, e := range entries {
		out = append(out, e.Name)
	}
	return out
}

// desiredMeta returns the desired metadata of a configuration that has meta. Labels and
// annotations of others stay. Owners and finalizers of others do not: the configuration has to be
// deleted together with the namespace at once, or API servers would refuse requests because mapd
// does not answer.
func (w *Writer) desiredMeta(meta metav1.ObjectMeta, namespace *corev1.Namespace) metav1.ObjectMeta {
	meta = *meta.DeepCopy()
	if meta.Labels == nil {
		meta.Labels = map[string]string{}
	}
	maps.Copy(meta.Labels, labels())
	metav1.SetMetaDataAnnotation(&meta, webhookconfig.InstallationAnnotation, w.installation().String())
	meta.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: namespace.Name, UID: namespace.UID}}
	meta.Finalizers = nil
	return meta
}

// encode returns the apply configuration of a new object.
func (c *configuration) encode(meta metav1.ObjectMeta, entries []entry) ([]byte, error) {
	object := map[string]any{
		"apiVersion": admissionregistrationv1.SchemeGroupVersion.String(), "kind": c.kind,
		"metadata": map[string]any{"name": c.name, "labels": meta.Labels, "annotations": meta.Annotations, "ownerReferences": meta.OwnerReferences},
		"webhooks": entries,
	}
	if c.validating {
		object["webhooks"] = toValidating(entries)
	}
	return json.Marshal(object)
}

// applied returns the authorities that all entries contain, for certs.Issuer.Maintain: nil if
// there are no entries, empty if they have no authority in common.
func applied(configurations []*configuration) []byte {
	var common map[string]bool
	var order []string
	for _, c := range configurations {
		_, entries, _ := c.get()
		for _, e := range entries {
			here := map[string]bool{}
			for text := e.ClientConfig.CABundle; ; {
				var block *pem.Block
				if block, text = pem.Decode(text); block == nil {
					break
				}
				one := string(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
				if common == nil && !here[one] {
					order = append(order, one)
				}
				here[one] = true
			}
			if common == nil {
				common = here
			}
			maps.DeleteFunc(common, func(one string, _ bool) bool { return !here[one] })
		}
	}
	if common == nil {
		return nil
	}
	out := []byte{}
	for _, one := range order {
		if common[one] {
			out = append(out, one...)
		}
	}
	return out
}

// anyReady reports whether one of the slices has an endpoint that can answer.
func anyReady(slicesOf []*discoveryv1.EndpointSlice) bool {
	for _, s := range slicesOf {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready == nil || *e.Conditions.Ready {
				return true
			}
		}
	}
	return false
}

// oneTemplate reports whether all replicas that may receive a request belong to the ReplicaSet of
// the Pod with this name, and so serve the same paths. Terminating replicas count, because API
// servers continue to use connections to them. If the Pod is not among the endpoints, oneTemplate
// returns true.
func oneTemplate(slicesOf []*discoveryv1.EndpointSlice, pod string) bool {
	here, others := false, false
	for _, s := range slicesOf {
		for _, e := range s.Endpoints {
			if e.TargetRef == nil || e.TargetRef.Kind != "Pod" {
				continue
			}
			here = here || e.TargetRef.Name == pod
			ready := e.Conditions.Ready == nil || *e.Conditions.Ready
			serving := e.Conditions.Serving != nil && *e.Conditions.Serving
			others = others || (ready || serving) && template(e.TargetRef.Name) != template(pod)
		}
	}
	return !here || !others
}

// template returns the common prefix of the names of all Pods of a ReplicaSet.
func template(pod string) string {
	if i := strings.LastIndexByte(pod, '-'); i >= 0 {
		return pod[:i]
	}
	return pod
}
