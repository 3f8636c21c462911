package store

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/webhook"
)

const (
	// handover is how long after the configuration has reached us it may take to
	// reach every API server.
	handover = 500 * time.Millisecond
	// blindHandover is how long a policy stays where it was if the configuration
	// cannot be read.
	blindHandover = 10 * time.Second
)

var configurationResource = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}

// moves keeps a policy in the entry that it has left by one of its bindings, until the
// webhook configuration has what the new entry needs: API servers call the old one until
// then. The replica that writes the configuration may be down at that moment, and a
// policy with failurePolicy Fail promises that no request bypasses it.
//
// A policy in two entries may act twice on one request if servers know both. That is
// brief, since servers learn of both entries by one write.
type moves struct {
	// base has the fields that all entries have in common.
	base admissionregistrationv1.MutatingWebhook
	// configuration is the webhook configuration that API servers use.
	configuration *watch.Mirror[routing]
	// pending says that a change of the configuration may end a move; always, that every
	// change matters.
	pending, always atomic.Bool

	// The rest belongs to the loop.
	moved map[string]*move // by binding
}

// A routing has, by the name of an entry, the fields of a configuration that decide
// which requests API servers send to it.
type routing map[string]admissionregistrationv1.MutatingWebhook

// A move is one policy that has left an entry by one of its bindings.
type move struct {
	left  []webhook.ID // all entries that it has left, in order
	since time.Time
	known time.Time // since when the configuration has what the new entry needs; zero if it lacks it
}

// newMoves returns moves that call again when a move may have ended.
func newMoves(client dynamic.Interface, exempt []string, log *slog.Logger, again func()) *moves {
	m := &moves{moved: map[string]*move{}}
	m.base.NamespaceSelector = webhookconfig.Exempt(exempt)
	m.configuration = watch.New(watch.Options[routing]{
		Client: client, Resource: configurationResource, Selection: watch.Named("", webhookconfig.ConfigurationName), Log: log,
		Keep: routingOf, EmptyAfter: goneAfter,
		Changed: func() {
			if m.pending.Load() || m.always.Load() {
				again()
			}
		},
	})
	return m
}

// routingOf reads a configuration. It returns nil for one that cannot be decoded.
func routingOf(u *unstructured.Unstructured, _ routing) routing {
	var c admissionregistrationv1.MutatingWebhookConfiguration
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &c) != nil {
		return nil
	}
	return routings(&c)
}

func routings(c *admissionregistrationv1.MutatingWebhookConfiguration) routing {
	out := routing{}
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		route := admissionregistrationv1.MutatingWebhook{Rules: w.Rules, MatchPolicy: w.MatchPolicy, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector}
		for _, s := range []**metav1.LabelSelector{&route.NamespaceSelector, &route.ObjectSelector} {
			if *s == nil {
				*s = &metav1.LabelSelector{} // as a server stores it
			}
		}
		for _, m := range w.MatchConditions {
			if webhookconfig.DependsOnPolicies(m) {
				route.MatchConditions = append(route.MatchConditions, m)
			}
		}
		out[w.Name] = route
	}
	return out
}

// live returns the routing that API servers use, nil if it is not known.
func (m *moves) live() routing {
	live, _ := m.configuration.Get("", webhookconfig.ConfigurationName)
	return live
}

// needed returns the routing that policies need.
func (m *moves) needed(c catalogue) routing {
	return routings(webhookconfig.Configuration(c.entries, m.base))
}

// update compares what is about to be published with before, which is nil the first
// time. It returns, by binding, the entries besides its own in which the policy has to
// stay, and after which time to call update again; 0 if only a change can end a move.
func (m *moves) update(before *catalogue, now catalogue, at time.Time) (also map[string][]webhook.ID, wait time.Duration) {
	m.pending.Store(true) // first: a change from here on must not be missed
	defer func() { m.pending.Store(len(m.moved) > 0) }()
	live := m.live()
	need := sync.OnceValue(func() routing { return m.needed(now) })
	switch {
	case before != nil:
		m.findMoves(before, &now, at)
	case len(live) > 0:
		// Policies may have moved to an entry that servers do not know while no replica
		// was running.
		for i, b := range now.bindings {
			if _, there := live[now.ids[i].Name()]; there || now.ids[i] == (webhook.ID{}) {
				continue
			}
			for name := range live {
				if id, ok := webhook.ParseName(name); ok {
					m.noteLeft(b.key(), id, now.ids[i], at)
				}
			}
		}
	}
	if len(m.moved) == 0 {
		return nil, 0
	}
	also = map[string][]webhook.ID{}
	for name, v := range m.moved {
		i, ok := search(now.bindings, name)
		if !ok || now.ids[i] == (webhook.ID{}) {
			delete(m.moved, name)
			continue
		}
		end := v.since.Add(blindHandover)
		if m.configuration.IsRead() {
			switch {
			case !equalRoutes(live, need(), now.ids[i].Name()):
				v.known = time.Time{}
			case v.known.IsZero():
				v.known = at
			}
			end = v.known.Add(handover)
		}
		switch left := end.Sub(at); {
		case m.configuration.IsRead() && v.known.IsZero():
			also[name] = v.left
		case left > 0:
			also[name] = v.left
			if wait == 0 || left < wait {
				wait = left
			}
		default:
			delete(m.moved, name)
		}
	}
	return also, wait
}

// findMoves notes the bindings by which policies have moved. Both lists are by name.
func (m *moves) findMoves(before, now *catalogue, at time.Time) {
	if len(before.ids) == len(now.ids) && (len(now.ids) == 0 || &before.ids[0] == &now.ids[0]) {
		return // lists are replaced, never modified
	}
	i := 0
	for j, b := range now.bindings {
		for i < len(before.bindings) && before.bindings[i].key() < b.key() {
			i++
		}
		if i == len(before.bindings) {
			return
		}
		old := before.bindings[i]
		from, to := before.ids[i], now.ids[j]
		if old.key() == b.key() && old.policyName == b.policyName && from != to && from != (webhook.ID{}) && to != (webhook.ID{}) {
			m.noteLeft(b.key(), from, to, at)
		}
	}
}

// noteLeft notes that a policy was in the entry from by a binding, and is in now.
func (m *moves) noteLeft(name string, from, now webhook.ID, at time.Time) {
	v := m.moved[name]
	if v == nil {
		v = &move{}
		m.moved[name] = v
	}
	v.since, v.known = at, time.Time{}
	// The list may have been returned by update, so it is replaced.
	v.left = slices.DeleteFunc(append(slices.Clone(v.left), from), func(id webhook.ID) bool { return id == now })
	slices.SortFunc(v.left, webhook.ID.Compare)
	v.left = slices.Compact(v.left)
}

// equalRoutes reports whether API servers send an entry exactly the requests that its
// policies need, or no policy needs the entry.
func equalRoutes(live, needed routing, name string) bool {
	is, there := live[name]
	should, wanted := needed[name]
	return !wanted || there && apiequality.Semantic.DeepEqual(is, should)
}
