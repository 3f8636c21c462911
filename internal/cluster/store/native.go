package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/internal/gatekeeper/nativepolicies"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/webhook"
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
}

// natives finds out which policies should stand for mutators, and which do.
// internal/cluster/controllers writes them; every replica watches what has been written, and leaves
// the mutators that have moved out of its set.
type natives struct {
	NativeOptions
	log *slog.Logger
	// policies and bindings are those of Kubernetes' own group. The Store reads those of
	// mapd's anyway.
	policies, bindings *watch.Mirror[*nativepolicies.Object]
	types              *openapi.Types
	own                func() (c *catalogue, read bool)
	live               func() routing
	base               admissionregistrationv1.MutatingWebhook
	changed            func()

	// The rest but for state and listeners belongs to the loop.
	wanted  *nativepolicies.Wanted
	tracker nativepolicies.Tracker
	objects map[*stored]*nativepolicies.Object // of mapd's group, kept while they are stored

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

func newNatives(client dynamic.Interface, s *Store, o NativeOptions) *natives {
	n := &natives{NativeOptions: o, log: s.log, changed: s.changes.Notify, live: s.moves.live, base: s.moves.base}
	types := s.schemas.Types()
	n.types = types
	of := func(kind string) *watch.Mirror[*nativepolicies.Object] {
		return watch.New(watch.Options[*nativepolicies.Object]{
			Client: client, Log: s.log, Types: types, Kinds: versionsOf(api.NativeGroup, kind, "v1"),
			Keep: keepNative, Changed: s.changes.Notify, StateChanged: s.changes.Notify,
		})
	}
	n.policies, n.bindings = of(api.PolicyKind), of(api.BindingKind)
	n.own = func() (*catalogue, bool) {
		gvk := schema.GroupVersionKind{Group: api.OwnGroup, Version: "v1", Kind: api.PolicyKind}
		if _, served := types.ResourceFor(gvk); !served && s.schemas.Ready() {
			return nil, true
		}
		return &s.compiler.catalogue, s.policies.IsRead() && s.bindings.IsRead()
	}
	return n
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

func (n *natives) run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { n.policies.Run(ctx) })
	all.Go(func() { n.bindings.Run(ctx) })
}

func (n *natives) look() {
	n.policies.Look()
	n.bindings.Look()
}

// sourcesReady returns nil once everything has been read, and otherwise what is missing.
func (n *natives) sourcesReady() error {
	var own error
	if _, ok := n.own(); !ok {
		own = fmt.Errorf("policies of %s: not read yet", api.OwnGroup)
	}
	return errors.Join(n.policies.Settled(), n.bindings.Settled(), own)
}

func (n *natives) problems() []string {
	var out []string
	for _, k := range []*watch.Mirror[*nativepolicies.Object]{n.policies, n.bindings} {
		if err := k.Problem(); err != nil {
			out = append(out, err.Error())
		}
	}
	return out
}

// update reports whether other mutators than before belong into the set; rules are those
// of its last build. If stale is set, it finds anew which policies are wanted. Mutators of
// the hidden kinds are missing from the list because they cannot be read.
func (n *natives) update(list []*storedMutator, config *storedConfig, stale bool, hidden []string, rules []admissionregistrationv1.RuleWithOperations) (moved bool, err error) {
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

func (n *natives) findWanted(list []*storedMutator, config *storedConfig) (w *nativepolicies.Wanted, err error) {
	if n.Back {
		w = &nativepolicies.Wanted{Stay: map[string]string{}}
		for _, m := range list {
			w.Stay[m.kind()+"/"+m.name()] = "mapd is to run it"
		}
		return w, nil
	}
	var all []nativepolicies.Mutator
	for _, m := range list {
		if m.mutator != nil {
			o := m.object
			all = append(all, nativepolicies.Mutator{Mutator: m.mutator, Owner: nativepolicies.Owner{APIVersion: o.GetAPIVersion(), Kind: o.GetKind(), Name: o.GetName(), UID: o.GetUID()}})
		}
	}
	var exclusions *legacy.Config
	if config != nil {
		exclusions = config.config
	}
	err = guarded(func() error {
		w = nativepolicies.Want(all, nativepolicies.Options{Config: exclusions, Exempt: n.Exempt, Types: n.types})
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, m := range list {
		if m.mutator == nil {
			w.Stay[m.kind()+"/"+m.name()] = fmt.Sprintf("refused: %v", m.err)
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
	c, _ := n.own()
	if c != nil {
		served = append(served, api.OwnGroup)
		n.addOwn(s.Objects, c)
	}
	if n.Alone {
		s.Called = true
		return s, served
	}
	live := n.live()
	s.Called = equalRoutes(live, legacyRouting(rules, n.base), webhookconfig.LegacyName)
	s.Acts = isCalled(c, live, n.base)
	return s, served
}

// addOwn adds the policies and bindings of mapd's group.
func (n *natives) addOwn(objects map[nativepolicies.Key]*nativepolicies.Object, c *catalogue) {
	kept := map[*stored]*nativepolicies.Object{}
	add := func(s *stored) {
		o := n.objects[s]
		if o == nil {
			o = nativepolicies.ReadObject(s.object, s.text)
		}
		kept[s], objects[o.Key] = o, o
	}
	for _, p := range c.policies {
		add(p.stored)
	}
	for _, b := range c.bindings {
		add(b.stored)
	}
	n.objects = kept
}

// isCalled returns a function that reports whether API servers call mapd for a policy of
// mapd's group. It returns true for policies of Kubernetes' own group.
func isCalled(c *catalogue, live routing, base admissionregistrationv1.MutatingWebhook) func(nativepolicies.Key) bool {
	uncalled := sync.OnceValue(func() map[string]bool {
		needed := routings(webhookconfig.Configuration(c.entries, base))
		out := map[string]bool{}
		for i, b := range c.bindings {
			if id := c.ids[i]; id == (webhook.ID{}) || !equalRoutes(live, needed, id.Name()) {
				out[b.policyName] = true
			}
		}
		return out
	})
	return func(k nativepolicies.Key) bool {
		if k.Group != api.OwnGroup {
			return true
		}
		p, ok := find(c.policies, k.Name)
		return ok && len(p.errs) == 0 && !p.nowhere && !uncalled()[k.Name]
	}
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
func (s *Store) Native() *NativeState {
	if s.gatekeeper == nil || s.gatekeeper.natives == nil {
		return nil
	}
	return s.gatekeeper.natives.state.Load()
}

// NativeChanged is Changed for Native. Without NativeOptions it is nil.
func (s *Store) NativeChanged() <-chan struct{} {
	if s.gatekeeper == nil || s.gatekeeper.natives == nil {
		return nil
	}
	n := s.gatekeeper.natives
	l := n.listeners.Add()
	if n.state.Load() != nil {
		l.Notify()
	}
	return l
}

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
