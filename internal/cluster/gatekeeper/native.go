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

// NativeOptions say how Gatekeeper's mutators move into policies.
type NativeOptions struct {
	// Exempt are namespaces that no policy is for.
	Exempt []string
	// Alone says that no mapd runs the mutators that are not moved, so that no move has to
	// wait for one.
	Alone bool
	// Back moves all mutators back to mapd: their policies are deleted as soon as mapd runs
	// them.
	Back bool
	// Group is the API group of the policies. Empty: Kubernetes' own if the server
	// serves and runs them, else mapd's.
	Group string
	// Namespace is where a server is asked whether it runs policies.
	Namespace string
}

// natives finds out which policies should stand for mutators, and which do. Its writer
// writes them; every replica watches what has been written, and leaves the mutators that
// have moved out of its set.
type natives struct {
	NativeOptions
	log *slog.Logger
	// policies and bindings are those of Kubernetes' own group. The Store reads those of
	// mapd's anyway.
	policies, bindings *watch.Mirror[*nativepolicies.Object]
	types              *openapi.Types
	own                feature.Own
	exceptions         func() *binding.Exceptions // may be nil
	changed            func()
	writer             *nativeWriter

	// The rest but for state and listeners belongs to the loop.
	wanted  *nativepolicies.Wanted
	stay    map[string]string // by ID: why an exception keeps a mutator with mapd
	tracker nativepolicies.Tracker
	objects map[*unstructured.Unstructured]*nativepolicies.Object // of mapd's group, kept while they are stored

	state     atomic.Pointer[NativeState]
	listeners watch.Listeners
}

// NativeState says which policies should be stored, which are, and where each mutator
// runs. It is immutable.
type NativeState struct {
	*nativepolicies.Wanted
	// Back is that of NativeOptions.
	Back bool
	// Objects are all policies and bindings, also those of others.
	Objects map[nativepolicies.Key]*nativepolicies.Object
	Places  nativepolicies.Places
	// Served are the groups that the server has and shows.
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

// report returns what the writer has last found out, nil before it has.
func (n *natives) report() *NativeReport {
	if n == nil {
		return nil
	}
	return n.writer.said.Load()
}

// keepNative reduces a policy or binding to what nativepolicies.Plan compares.
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

// update reports whether other mutators than before belong into the set; rules are those
// of its last build. If stale is set, it finds anew which policies are wanted. Mutators of
// the hidden kinds are missing from the list because they cannot be read.
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

// excepted returns which mutators have to stay with mapd: an API server reads no exceptions.
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

// addOwn adds the policies and bindings of mapd's group, and reports whether the server
// serves it.
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

// places returns where each mutator runs, nil if none is moved.
func (n *natives) places() nativepolicies.Places {
	if n == nil || n.state.Load() == nil {
		return nil
	}
	return n.state.Load().Places
}

// Native returns what is to be moved and what is, nil if nothing is or it has not
// been read.
func (g *Feature) Native() *NativeState {
	if g.natives == nil {
		return nil
	}
	return g.natives.state.Load()
}

// NativeChanged returns a new channel, which receives a value after Native has changed; nil
// if nothing is moved.
func (g *Feature) NativeChanged() <-chan struct{} {
	if g.natives == nil {
		return nil
	}
	return g.natives.follow()
}

// follow returns a channel for one who follows state.
func (n *natives) follow() <-chan struct{} {
	l := n.listeners.Add()
	if n.state.Load() != nil {
		l.Notify()
	}
	return l
}

// NativeReport returns what the last Control has found out, nil before the first.
func (g *Feature) NativeReport() *NativeReport { return g.natives.report() }

// NativeReported returns a new channel, which receives a value after NativeReport has
// changed; nil if nothing is moved.
func (g *Feature) NativeReported() <-chan struct{} {
	if g.natives == nil {
		return nil
	}
	return g.natives.writer.listeners.Add()
}

// Control implements feature.Controlled: it writes the policies that stand for mutators, or
// deletes them. Without namespace policies belong to nobody.
func (g *Feature) Control(ctx context.Context, namespace *corev1.Namespace) {
	if g.natives != nil {
		g.natives.writer.run(ctx, namespace)
	}
}

// Forget deletes the policy that asks servers whether they run policies, if it is there.
func (g *Feature) Forget(ctx context.Context) error { return g.natives.writer.forget(ctx) }

// Moved is the state of a mutator that is to be moved.
type Moved struct {
	// Policy is what its policy is called, empty if it has none; Stays is why.
	Policy, Stays string
	// Out says that policies run it, those of Groups.
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
