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
	// handover is how long it may take, after a replica has seen the configuration, until every
	// API server uses it.
	handover = 500 * time.Millisecond
	// blindHandover is how long a policy stays in its old entry if the configuration cannot be
	// read.
	blindHandover = 10 * time.Second
)

var configurationResource = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}

// moves keeps a policy in the entry that it has left because of one of its bindings, until the
// webhook configuration has what the new entry needs: until then API servers call the old entry.
// This may take long if no replica can write the configuration, and a policy with failurePolicy
// Fail promises that no request bypasses it.
//
// A policy in two entries may run twice for one request if API servers know both entries. That is
// brief, because API servers learn of both entries by one write.
type moves struct {
	// base has the common fields of all entries.
	base admissionregistrationv1.MutatingWebhook
	// configuration is the webhook configuration that API servers use.
	configuration *watch.Mirror[routing]
	// pending: a change of the configuration may end a move. always: every change of it matters.
	pending, always atomic.Bool

	// Only update uses the following field.
	moved map[string]*move // by binding
}

// A routing maps the name of an entry to those fields of a configuration that decide which
// requests API servers send.
type routing map[string]admissionregistrationv1.MutatingWebhook

// A move is a policy that has left an entry because of one of its bindings.
type move struct {
	left  []webhook.ID // all entries that it has left so far, in order
	since time.Time
	known time.Time // since when the configuration has what the new entry needs; zero: it does not
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
				*s = &metav1.LabelSelector{} // the default that a server sets
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

// needed returns the routing that the policies of a catalogue need.
func (m *moves) needed(c catalogue) routing {
	return routings(webhookconfig.Configuration(c.entries, m.base))
}

// update compares the catalogue to be published with the one before, which is nil the first time.
// It returns, for each binding, further entries in which the policy has to stay, and after which
// time to call update again; 0 means after a change only.
func (m *moves) update(before *catalogue, now catalogue, at time.Time) (also map[string][]webhook.ID, wait time.Duration) {
	m.pending.Store(true) // before anything is read, so that no later change is missed
	defer func() { m.pending.Store(len(m.moved) > 0) }()
	live := m.live()
	need := sync.OnceValue(func() routing { return m.needed(now) })
	switch {
	case before != nil:
		m.findMoves(before, &now, at)
	case len(live) > 0:
		// While no replica was running, policies may have moved to an entry that API servers do
		// not know.
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

// findMoves records the bindings because of which policies have moved. Both lists are sorted by
// name.
func (m *moves) findMoves(before, now *catalogue, at time.Time) {
	if len(before.ids) == len(now.ids) && (len(now.ids) == 0 || &before.ids[0] == &now.ids[0]) {
		return // the same lists; they are replaced and never modified
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

// noteLeft records that a policy has moved from one entry to another because of a binding.
func (m *moves) noteLeft(name string, from, now webhook.ID, at time.Time) {
	v := m.moved[name]
	if v == nil {
		v = &move{}
		m.moved[name] = v
	}
	v.since, v.known = at, time.Time{}
	// A caller of update may hold the list, so it is replaced and not modified.
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
