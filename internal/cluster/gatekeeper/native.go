package gatekeeper

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/gatekeeper/nativepolicies"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// NativeOptions configure how mutators move into policies.
type NativeOptions struct {
	// Exempt are namespaces that the policies exclude.
	Exempt []string
	// Alone: no mapd runs the mutators that are not moved, so no move has to wait for one.
	Alone bool
	// Back moves all mutators back to mapd: their policies are deleted as soon as mapd runs the
	// mutators.
	Back bool
	// Group is the API group of the policies. If it is empty, that is Kubernetes' own group if
	// the server serves it and runs its policies, and mapd's otherwise.
	Group string
	// Namespace is where the probe is evaluated, see Probe.
	Namespace string
}

// natives decides which policies should replace mutators, and observes which do. Its writer
// writes them. Every replica watches the stored policies, and removes the mutators that have
// moved from its set.
type natives struct {
	NativeOptions
	log *slog.Logger
	// policies and bindings are those of Kubernetes' own group. The Store reads those of mapd's
	// group.
	policies, bindings *watch.Mirror[*nativepolicies.Object]
	types              *openapi.Types
	own                feature.Own
	exceptions         func() *binding.Exceptions // may be nil
	changed            func()
	writer             *nativeWriter

	// Only Update uses the following fields, except state and listeners.
	wanted  *nativepolicies.Wanted
	stay    map[string]string // by ID: the exception because of which a mutator stays with mapd
	tracker nativepolicies.Tracker
	objects map[*unstructured.Unstructured]*nativepolicies.Object // by metadata: objects of mapd's group that were read before

	state     atomic.Pointer[NativeState]
	listeners watch.Listeners
}

// NativeState has the wanted policies, the stored ones, and where each mutator runs. It is
// immutable.
type NativeState struct {
	*nativepolicies.Wanted
	// Back is NativeOptions.Back.
	Back bool
	// Objects are all policies and bindings of the cluster, including those of others.
	Objects map[nativepolicies.Key]*nativepolicies.Object
	Places  nativepolicies.Places
	// Served are the groups that the server serves and lets mapd read.
	Served []string
}

func newNatives(d feature.Deps, o NativeOptions) *natives {
	n := &natives{NativeOptions: o, log: d.Log, changed: d.Changed, own: d.Own, exceptions: d.Sources.Exceptions, types: d.Policy.Types}
	n.policies = feature.Watch(d, keepNative, feature.Versions(api.NativeGroup, api.PolicyKind, "v1"))
	n.bindings = feature.Watch(d, keepNative, feature.Versions(api.NativeGroup, api.BindingKind, "v1"))
	n.writer = newNativeWriter(n, d.Client)
	d.Own.Follow()
	return n
}

// report returns the last report of the writer, nil if there is none yet.
func (n *natives) report() *NativeReport {
	if n == nil {
		return nil
	}
	return n.writer.said.Load()
}

// keepNative returns the fields of a policy or binding that nativepolicies.Plan compares.
func keepNative(u *unstructured.Unstructured, old *nativepolicies.Object) *nativepolicies.Object {
	if old != nil && old.UID == u.GetUID() && old.Version == u.GetResourceVersion() {
		return old
	}
	text, err := json.Marshal(u.Object)
	if err != nil {
		text = nil
	}
	return nativepolicies.ReadObject(u, text)
}

// ownReady returns nil once the policies of mapd's group have been read.
func (n *natives) ownReady() error {
	if _, read := n.own.Each(nil); !read {
		return fmt.Errorf("policies of %s: not read yet", api.OwnGroup)
	}
	return nil
}

// update reports whether the set has to contain other mutators than before. If stale is set, it
// determines the wanted policies again. hidden are kinds that cannot be read, so their mutators
// are missing in list. rules are those of the last build of the set.
func (n *natives) update(list []*storedMutator, config *storedConfig, stale bool, hidden []string, rules []admissionregistrationv1.RuleWithOperations) (moved bool, err error) {
	if stay := n.excepted(); !maps.Equal(stay, n.stay) {
		n.stay, stale = stay, true
	}
	if stale || n.wanted == nil {
		wanted, err := n.findWanted(list, config)
		if err != nil {
			return false, err
		}
		n.wanted = wanted
	}
	sight, served := n.observe(rules)
	sight.Hidden = hidden
	places, wait := n.tracker.Settle(n.wanted, sight, time.Now())
	if wait > 0 {
		time.AfterFunc(wait, n.changed)
	}
	before := n.state.Load()
	next := &NativeState{Wanted: n.wanted, Back: n.Back, Objects: sight.Objects, Places: places, Served: served}
	if before == nil || before.Wanted != next.Wanted || !maps.Equal(before.Objects, next.Objects) ||
		!before.Places.Equal(next.Places) || !slices.Equal(before.Served, next.Served) {
		n.state.Store(next)
		n.listeners.Notify()
	}
	if before == nil {
		return true, nil
	}
	return !maps.EqualFunc(before.Places, places, func(a, b nativepolicies.Place) bool {
		return a.Out == b.Out && a.Unit == b.Unit && slices.Equal(a.Settled, b.Settled)
	}), nil
}

// excepted returns the mutators that have to stay with mapd because a PolicyException names them:
// an API server knows no exceptions.
func (n *natives) excepted() map[string]string {
	if n.exceptions == nil || n.Back {
		return nil
	}
	now := time.Now()
	of, next := n.exceptions().Last(now)
	stay := make(map[string]string, len(of))
	for policy, x := range of {
		stay[policy] = fmt.Sprintf("%s, which an API server does not read", x)
	}
	if !next.IsZero() && !maps.Equal(stay, n.stay) {
		time.AfterFunc(next.Sub(now), n.changed)
	}
	return stay
}

func (n *natives) findWanted(list []*storedMutator, config *storedConfig) (w *nativepolicies.Wanted, err error) {
	if n.Back {
		w = &nativepolicies.Wanted{Stay: map[string]string{}}
		for _, m := range list {
			w.Stay[idOf(m)] = "mapd is to run it"
		}
		return w, nil
	}
	var all []nativepolicies.Mutator
	for _, m := range list {
		if m.Value != nil {
			o := m.Object
			all = append(all, nativepolicies.Mutator{Mutator: m.Value, Owner: nativepolicies.Owner{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID()}})
		}
	}
	var exclusions *legacy.Config
	if config != nil {
		exclusions = config.Value
	}
	err = feature.Guarded(func() error {
		w = nativepolicies.Want(all, nativepolicies.Options{Config: exclusions, Exempt: n.Exempt, Types: n.types, Stay: n.stay})
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		if m.Value == nil {
			w.Stay[idOf(m)] = fmt.Sprintf("refused: %v", m.Err)
		}
	}
	return w, nil
}

// observe returns the policies and bindings that are stored now, and the groups that the
// server serves.
func (n *natives) observe(rules []admissionregistrationv1.RuleWithOperations) (s nativepolicies.Sight, served []string) {
	s.Objects = map[nativepolicies.Key]*nativepolicies.Object{}
	for _, k := range []*watch.Mirror[*nativepolicies.Object]{n.policies, n.bindings} {
		k.Each("", func(_ string, o *nativepolicies.Object) { s.Objects[o.Key] = o })
	}
	if n.policies.IsRead() && n.bindings.IsRead() {
		served = append(served, api.NativeGroup)
	}
	if n.addOwn(s.Objects) {
		served = append(served, api.OwnGroup)
	}
	if n.Alone {
		s.Called = true
		return s, served
	}
	s.Called = n.own.Routed(EntryName, newEntry(rules, n.own.Base()))
	called := n.own.Called()
	s.Acts = func(k nativepolicies.Key) bool { return k.Group != api.OwnGroup || called(k.Name) }
	return s, served
}

// addOwn adds the policies and bindings of mapd's group to objects, and reports whether the
// server serves the group.
func (n *natives) addOwn(objects map[nativepolicies.Key]*nativepolicies.Object) (served bool) {
	kept := map[*unstructured.Unstructured]*nativepolicies.Object{}
	served, _ = n.own.Each(func(object *unstructured.Unstructured, text []byte) {
		o := n.objects[object]
		if o == nil {
			o = nativepolicies.ReadObject(object, text)
		}
		kept[object], objects[o.Key] = o, o
	})
	n.objects = kept
	return served
}

// places returns where each mutator runs, nil if mutators do not move.
func (n *natives) places() nativepolicies.Places {
	if n == nil || n.state.Load() == nil {
		return nil
	}
	return n.state.Load().Places
}

// Native returns the present state of moving mutators, nil if they do not move or nothing has
// been read yet.
func (g *Feature) Native() *NativeState {
	if g.natives == nil {
		return nil
	}
	return g.natives.state.Load()
}

// NativeChanged returns a new channel, which receives a value after Native has changed; nil if
// mutators do not move.
func (g *Feature) NativeChanged() <-chan struct{} {
	if g.natives == nil {
		return nil
	}
	return g.natives.follow()
}

// follow returns a channel that receives a value after state has changed.
func (n *natives) follow() <-chan struct{} {
	l := n.listeners.Add()
	if n.state.Load() != nil {
		l.Notify()
	}
	return l
}

// NativeReport returns the last report of Control, nil before the first.
func (g *Feature) NativeReport() *NativeReport { return g.natives.report() }

// NativeReported returns a new channel, which receives a value after NativeReport has changed;
// nil if mutators do not move.
func (g *Feature) NativeReported() <-chan struct{} {
	if g.natives == nil {
		return nil
	}
	return g.natives.writer.listeners.Add()
}

// Control implements feature.Controlled: it writes and deletes the policies that replace
// mutators. namespace owns the probe, unless it is nil.
func (g *Feature) Control(ctx context.Context, namespace *corev1.Namespace) {
	if g.natives != nil {
		g.natives.writer.run(ctx, namespace)
	}
}

// Forget deletes the probe, if it is stored.
func (g *Feature) Forget(ctx context.Context) error { return g.natives.writer.forget(ctx) }

// Moved is the state of a mutator that may move into a policy.
type Moved struct {
	// Policy is the name of its policy. If it has none, Policy is empty and Stays is the reason.
	Policy, Stays string
	// Out: policies in Groups run it, and mapd does not.
	Out    bool
	Groups []string
}

// Of returns the state of one mutator.
func (s *NativeState) Of(id string) *Moved {
	p := s.Places[id]
	return &Moved{Policy: p.Unit, Stays: s.Stay[id], Out: p.Out, Groups: p.Settled}
}

func (m *Moved) equal(o *Moved) bool {
	if m == nil || o == nil {
		return m == o
	}
	return m.Policy == o.Policy && m.Stays == o.Stays && m.Out == o.Out && slices.Equal(m.Groups, o.Groups)
}
