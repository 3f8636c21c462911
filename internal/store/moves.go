package store

import (
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/pkg/policy"
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

// moves keep policies in the group that they have left for as long as servers call
// that one for them: until the webhook configuration has what their new group
// needs. Who writes it may be away just then, and a policy with failurePolicy Fail
// promises that nothing passes it by.
//
// A policy that is in two groups may act twice on one request. It does not have
// to be for long, since servers are told of both groups in one write.
type moves struct {
	// configuration is what servers go by.
	configuration *watched[routing]
	// pending says that a change of the configuration may matter; always, that each
	// does.
	pending, always atomic.Bool

	// The rest belongs to the loop.
	moved map[string]*move // by policy
}

// A routing is what a configuration says of each group: its rules and matchPolicy.
type routing map[webhook.Group]admissionregistrationv1.MutatingWebhook

// legacyGroup stands in a routing for the entry of Gatekeeper's mutators, which
// belongs to no group.
var legacyGroup webhook.Group

// A move is one policy on its way.
type move struct {
	left  []webhook.Group // all that it was in, in any order
	since time.Time
	known time.Time // since when the configuration is what the new group needs; zero: it is not
}

// newMoves takes a function to call when something may be over.
func newMoves(client dynamic.Interface, log *slog.Logger, again func()) *moves {
	m := &moves{moved: map[string]*move{}}
	m.configuration = newWatched(client, configurationResource, log, routingOf, func() {
		if m.pending.Load() || m.always.Load() {
			again()
		}
	})
	m.configuration.fields = "metadata.name=" + webhook.ConfigurationName
	return m
}

// routingOf reads a configuration; of what cannot be read nothing is known.
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
		route := admissionregistrationv1.MutatingWebhook{Rules: w.Rules, MatchPolicy: w.MatchPolicy}
		if w.Name == webhook.LegacyName {
			out[legacyGroup] = route
		}
		for _, g := range webhook.Groups() {
			if w.Name == g.Name() {
				out[g] = route
			}
		}
	}
	return out
}

// legacyRouting is what the mutators need whose rules these are.
func legacyRouting(rules []admissionregistrationv1.RuleWithOperations) routing {
	entry := webhook.LegacyEntry(rules, admissionregistrationv1.MutatingWebhook{})
	if entry == nil {
		return nil
	}
	return routings(&admissionregistrationv1.MutatingWebhookConfiguration{Webhooks: []admissionregistrationv1.MutatingWebhook{*entry}})
}

// live is what servers go by, as far as it is known.
func (m *moves) live() routing {
	live, _ := m.configuration.get("", webhook.ConfigurationName)
	return live
}

// settle takes in what is about to be published after before, which is nil the
// first time, and returns the groups in which each policy still is besides its
// own, and after which time to ask again: 0 if only news can change something.
func (m *moves) settle(before *catalogue, now catalogue, at time.Time) (also map[string][]webhook.Group, wait time.Duration) {
	m.pending.Store(true) // first: a change from here on must not be missed
	defer func() { m.pending.Store(len(m.moved) > 0) }()
	live := m.live()
	var needed routing
	need := func() routing {
		if needed == nil {
			needed = routings(webhook.Configuration(boundOf(now), admissionregistrationv1.MutatingWebhook{}))
		}
		return needed
	}
	switch {
	case before != nil:
		m.compare(before.policies, now.policies, at)
	case len(live) > 0:
		// While no replica was there to see it, policies may have moved to a group
		// that servers have not heard of.
		for _, p := range now.policies {
			if _, there := live[p.group]; !there {
				for _, g := range webhook.Groups() {
					m.leave(p.key(), g, p.group, at)
				}
			}
		}
	}
	if len(m.moved) == 0 {
		return nil, 0
	}
	also = map[string][]webhook.Group{}
	for name, v := range m.moved {
		p, ok := find(now.policies, name)
		if !ok {
			delete(m.moved, name)
			continue
		}
		end := v.since.Add(blindHandover)
		if m.configuration.isRead() {
			switch {
			case !equalRoutes(live, need(), p.group):
				v.known = time.Time{}
			case v.known.IsZero():
				v.known = at
			}
			end = v.known.Add(handover)
		}
		switch left := end.Sub(at); {
		case m.configuration.isRead() && v.known.IsZero():
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

// compare finds the policies that have changed their group. Both lists are by name.
func (m *moves) compare(before, now []*compiledPolicy, at time.Time) {
	if len(before) == len(now) && (len(now) == 0 || &before[0] == &now[0]) {
		return // lists are replaced, never modified
	}
	for _, p := range now {
		if len(before) > 0 && before[0] == p {
			before = before[1:]
			continue
		}
		for len(before) > 0 && before[0].key() < p.key() {
			before = before[1:]
		}
		if len(before) > 0 && before[0].key() == p.key() && before[0].group != p.group {
			m.leave(p.key(), before[0].group, p.group, at)
		}
	}
}

// leave notes that a policy of group now was in another group.
func (m *moves) leave(name string, from, now webhook.Group, at time.Time) {
	v := m.moved[name]
	if v == nil {
		v = &move{}
		m.moved[name] = v
	}
	v.since, v.known = at, time.Time{}
	// Who has been handed out the list goes on to use it.
	v.left = slices.DeleteFunc(append(slices.Clone(v.left), from), func(g webhook.Group) bool { return g == now })
	slices.SortFunc(v.left, func(a, b webhook.Group) int {
		return slices.Index(webhook.Groups(), a) - slices.Index(webhook.Groups(), b)
	})
	v.left = slices.Compact(v.left)
}

// equalRoutes says that servers come to a group for all that its policies need.
func equalRoutes(live, needed routing, g webhook.Group) bool {
	is, there := live[g]
	should, wanted := needed[g]
	return !wanted || there && apiequality.Semantic.DeepEqual(is, should)
}

// boundOf are the policies that configurations are derived from.
func boundOf(c catalogue) []*policy.Policy {
	var out []*policy.Policy
	for i, bound := range c.bound() {
		if bound {
			out = append(out, c.policies[i].policy)
		}
	}
	return out
}
