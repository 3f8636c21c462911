package gatekeeper

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/csaupgrade"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/gatekeeper/nativepolicies"
	"github.com/mapd-project/mapd/pkg/api"
)

// nativeManager is the field manager of the policies that replace mutators.
const nativeManager = "mapd-native"

const (
	// pace is the minimum time between two rounds, and lookEvery how often to look while there is
	// no state yet.
	pace      = 50 * time.Millisecond
	lookEvery = 30 * time.Second
	// retryFirst and retryMost bound the wait after a policy could not be written.
	retryFirst = time.Second
	retryMost  = 30 * time.Second
	// writeRate bounds the policies that are written per second.
	writeRate = 50
)

// nativeWriter writes the policies and bindings that replace Gatekeeper's mutators. Only one may
// run in a cluster at a time.
type nativeWriter struct {
	of        *natives
	log       *slog.Logger
	client    dynamic.Interface
	changed   <-chan struct{}
	rate      flowcontrol.RateLimiter
	said      atomic.Pointer[NativeReport]
	listeners watch.Listeners // of changes of the report

	// run resets the following fields.
	namespace *corev1.Namespace
	probe     probe
	failed    map[string]string // by the name of a policy: the reason why it was not written
	logged    map[string]string
	retry     time.Duration
}

// NativeReport describes how the stored policies differ from the wanted ones.
type NativeReport struct {
	// Group is the API group of the policies; empty if none can be used.
	Group string
	// Units maps the name of a policy to the reason why it is not as wanted.
	Units map[string]string
	// Problems concern more than one policy.
	Problems []string
}

func (r *NativeReport) equal(o *NativeReport) bool {
	return r != nil && o != nil && r.Group == o.Group && maps.Equal(r.Units, o.Units) && slices.Equal(r.Problems, o.Problems)
}

func newNativeWriter(n *natives, client dynamic.Interface) *nativeWriter {
	return &nativeWriter{of: n, log: n.log, client: client, changed: n.follow(), rate: flowcontrol.NewTokenBucketRateLimiter(writeRate, writeRate)}
}

// run writes until ctx is done. It may be called again afterwards. namespace owns the probe, but
// not the policies that replace mutators; if it is nil, the probe has no owner.
func (n *nativeWriter) run(ctx context.Context, namespace *corev1.Namespace) {
	n.namespace, n.probe, n.logged, n.retry = namespace, probe{}, map[string]string{}, 0
	for ctx.Err() == nil {
		pause := lookEvery
		if s := n.of.state.Load(); s != nil {
			pause = n.round(ctx, s)
		}
		if !watch.Sleep(ctx, pace, nil, nil) || !watch.Sleep(ctx, pause, n.changed, nil) {
			return
		}
	}
}

// round writes what differs, and returns after which time to look again if nothing changes.
func (n *nativeWriter) round(ctx context.Context, s *NativeState) time.Duration {
	n.failed = map[string]string{}
	report := &NativeReport{Units: map[string]string{}}
	units, wait, ok := n.chooseGroup(ctx, s, report)
	if ctx.Err() != nil {
		return wait
	}
	if !ok { // everything stays as it is
		n.publishReport(report)
		return wait
	}
	plan := nativepolicies.Plan(units, s.Objects, s.Places)
	maps.Copy(report.Units, plan.Foreign)
	n.executeAll(ctx, plan.List)
	if ctx.Err() != nil {
		return wait
	}
	maps.Copy(report.Units, n.failed)
	n.publishReport(report)
	if len(n.failed) == 0 {
		n.retry = 0
		return wait
	}
	n.retry = min(retryMost, max(retryFirst, 2*n.retry))
	return min(wait, n.retry)
}

// chooseGroup returns the wanted units in the group in which they are to be stored, and for how
// long that choice is valid. ok is false while the group is not known.
func (n *nativeWriter) chooseGroup(ctx context.Context, s *NativeState, report *NativeReport) (units []nativepolicies.Placed, wait time.Duration, ok bool) {
	serves := func(g string) bool { return slices.Contains(s.Served, g) }
	wait = probeEvery
	switch {
	case s.Back:
		return nil, wait, true
	case n.of.Group != "":
		if serves(n.of.Group) {
			report.Group = n.of.Group
		}
	case serves(api.NativeGroup):
		units = append(units, nativepolicies.Placed{Unit: n.probeUnit(), Group: api.NativeGroup})
		var runs verdict
		switch runs, wait = n.probeServer(ctx, s, &units[0]); runs {
		case unknown:
			n.executeAll(ctx, nativepolicies.Plan(units, objectsNamed(s.Objects, probeName), nil).List)
			if why := n.failed[probeName]; why != "" {
				report.Problems = append(report.Problems, "policies cannot be written: "+why)
				wait = max(wait, retryFirst)
			}
			return nil, wait, false
		case yes:
			report.Group = api.NativeGroup
		case no:
			if serves(api.OwnGroup) {
				report.Group = api.OwnGroup
			}
		}
	case serves(api.OwnGroup):
		report.Group = api.OwnGroup
	}
	if report.Group == "" {
		report.Problems = append(report.Problems, "policies cannot be written: the server does not serve them, does not show them, or does not run them")
		return units, wait, true
	}
	for i := range s.Units {
		units = append(units, nativepolicies.Placed{Unit: s.Units[i], Group: report.Group})
	}
	return units, wait, true
}

// executeAll executes actions one after the other. If one fails, it skips those that depend on
// it.
func (n *nativeWriter) executeAll(ctx context.Context, list []nativepolicies.Action) {
	for _, a := range list {
		failed := cmp.Or(a.Unit, a.Name)
		if n.failed[failed] != "" {
			continue
		}
		if n.rate.Wait(ctx) != nil {
			return
		}
		err := Execute(ctx, n.client, a, nativeManager)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			n.log.Info("policy that replaces mutators written", "action", a.String())
			delete(n.logged, failed)
		case apierrors.IsConflict(err), apierrors.IsNotFound(err) && a.Seen != nil, apierrors.IsAlreadyExists(err) && a.Seen == nil:
			// Somebody was faster; the Store will notice.
			n.log.Debug("somebody else wrote the policy that replaces mutators; reading it again", "action", a.String(), "error", err)
		default:
			n.failed[failed] = err.Error()
			if n.logged[failed] != err.Error() {
				n.logged[failed] = err.Error()
				n.log.Error("policy that replaces mutators not written", "action", a.String(), "error", err)
			}
			if !isAnswer(err) {
				return // the server does not answer, so the other actions would only wait
			}
		}
	}
}

func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) || errors.Is(err, errOther)
}

var errOther = errors.New("the server stores another spec than it was sent")

// callLimit bounds one request.
const callLimit = 10 * time.Second

// Execute executes one action as a field manager. If the stored object is not the one that the
// action has seen, it changes nothing and returns a Conflict, NotFound or AlreadyExists error.
func Execute(ctx context.Context, d dynamic.Interface, a nativepolicies.Action, manager string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	client := d.Resource(resourceOf(a.Key))
	if a.Part == nil {
		return client.Delete(ctx, a.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &a.Seen.UID, ResourceVersion: &a.Seen.Version}})
	}
	u := a.Part.Object.DeepCopy()
	u.SetAPIVersion(a.Group + "/v1")
	if a.Seen == nil {
		// An apply would take over an object that somebody else has created under that name
		// meanwhile.
		got, err := client.Create(ctx, u, metav1.CreateOptions{FieldManager: manager})
		return finish(ctx, client, got, err, a.Part, manager)
	}
	u.SetUID(a.Seen.UID)
	u.SetResourceVersion(a.Seen.Version)
	got, err := client.Apply(ctx, a.Name, u, metav1.ApplyOptions{FieldManager: manager, Force: true})
	switch {
	case apierrors.IsInvalid(err):
		// Fields of another manager conflict with the applied ones.
		got, err = client.Update(ctx, u, metav1.UpdateOptions{FieldManager: manager})
	case err == nil && digestOf(got) != a.Part.Digest:
		// An apply does not remove fields that another manager owns, too.
		got.Object["spec"] = u.Object["spec"]
		got, err = client.Update(ctx, got, metav1.UpdateOptions{FieldManager: manager})
	}
	return finish(ctx, client, got, err, a.Part, manager)
}

// finish handles the result of a write. It makes manager the owner of all fields as if they had
// been applied, so that the next apply removes those that it no longer has.
func finish(ctx context.Context, client dynamic.ResourceInterface, got *unstructured.Unstructured, err error, part *nativepolicies.Part, manager string) error {
	if err == nil && digestOf(got) != part.Digest {
		err = errOther
	}
	for err == nil {
		var patch []byte
		if patch, err = csaupgrade.UpgradeManagedFieldsPatch(got, sets.New(manager), manager); err != nil || patch == nil {
			return err
		}
		if _, err = client.Patch(ctx, got.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{}); !apierrors.IsConflict(err) {
			return err
		}
		// Somebody has written the object meanwhile, perhaps mapd itself its status. mapd may
		// list such objects everywhere, but not get them.
		var now *unstructured.UnstructuredList
		now, err = client.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + got.GetName()})
		switch {
		case err != nil:
		case len(now.Items) == 0 || now.Items[0].GetUID() != got.GetUID():
			return nil // the object was replaced
		default:
			got = &now.Items[0]
		}
	}
	return err
}

func digestOf(u *unstructured.Unstructured) string {
	text, err := json.Marshal(u.Object)
	if err != nil {
		return ""
	}
	return nativepolicies.Digest(u.GetKind() == api.BindingKind, text)
}

func resourceOf(k nativepolicies.Key) schema.GroupVersionResource {
	r := api.OwnPolicies
	if k.Binding {
		r = api.OwnBindings
	}
	r.Group = k.Group
	return r
}

// objectsNamed returns the objects that have a name.
func objectsNamed(objects map[nativepolicies.Key]*nativepolicies.Object, name string) map[nativepolicies.Key]*nativepolicies.Object {
	out := map[nativepolicies.Key]*nativepolicies.Object{}
	for k, o := range objects {
		if k.Name == name {
			out[k] = o
		}
	}
	return out
}

// publishReport publishes r if it differs from the last report.
func (n *nativeWriter) publishReport(r *NativeReport) {
	if n.said.Load().equal(r) {
		return
	}
	n.said.Store(r)
	for _, p := range r.Problems {
		n.log.Warn("the policies that replace mutators have a problem", "problem", p)
	}
	n.listeners.Notify()
	n.of.changed()
}
