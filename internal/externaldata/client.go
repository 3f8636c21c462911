package externaldata

import (
	"context"
	"crypto/tls"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy"
)

// Bounds of what one provider may cost. Keys and providers are written by others.
const (
	maxKeys        = 1000    // in one call
	maxRequest     = 1 << 18 // bytes of one call's keys
	maxBody        = 1 << 20 // bytes of one answer
	maxItems       = 10_000  // of one answer
	maxCalls       = 64      // under way at once
	maxConnections = 32      // to one provider

	// After maxFailures failed calls in a row, a provider is not called for restTime.
	// Then one call tries again.
	maxFailures = 5
	restTime    = 5 * time.Second
)

// Options configure a Client. The zero value is usable.
type Options struct {
	// Certificate returns the client certificate that providers are offered; nil
	// offers none.
	Certificate func() (*tls.Certificate, error)
	// TTL and NegativeTTL say for how long an answer is given again without a call: a
	// value, and a provider's error for a key. 0 means never, as with Gatekeeper.
	TTL, NegativeTTL time.Duration
	// Metrics may be nil.
	Metrics Metrics

	now func() time.Time // nil: time.Now
}

// Metrics counts what providers are asked. *metrics.Metrics is one.
type Metrics interface {
	// ProviderCalled records one call, with so many keys. result is "ok" or the Reason
	// for which the whole call failed.
	ProviderCalled(provider, result string, keys int, took time.Duration)
	// ProviderAnswered records the answers to one request: how many of the keys were
	// answered from the cache, how many by a call that another request had made, and
	// how many answers were errors.
	ProviderAnswered(provider string, cached, shared, failed int)
	// ProvidersPublished records the providers that can be asked from now on, and how
	// many are refused. It forgets all others.
	ProvidersPublished(names []string, refused int)
}

// Client asks providers over HTTPS. It is safe for concurrent use.
type Client struct {
	options Options
	cache   *cache // nil: nothing is cached

	mu        sync.RWMutex
	endpoints map[string]*endpoint
}

// New returns a Client that knows no provider yet.
func New(o Options) *Client {
	if o.now == nil {
		o.now = time.Now
	}
	c := &Client{options: o, endpoints: map[string]*endpoint{}}
	if o.TTL > 0 || o.NegativeTTL > 0 {
		c.cache = newCache()
	}
	return c
}

// Set makes providers those that are asked from now on; refused counts the others,
// which cannot be used, for metrics. A provider that is equal to the one before keeps
// its connections and its cached answers. Calls under way end as they began.
func (c *Client) Set(providers []*legacy.Provider, refused int) {
	next := make(map[string]*endpoint, len(providers))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range providers {
		if old := c.endpoints[p.Name]; old != nil && old.provider.Equal(p) {
			next[p.Name] = old
		} else {
			next[p.Name] = newEndpoint(p, &c.options)
		}
	}
	for name, old := range c.endpoints {
		if next[name] != old {
			old.close()
		}
	}
	c.endpoints = next
	if c.options.Metrics != nil {
		c.options.Metrics.ProvidersPublished(slices.Sorted(maps.Keys(next)), refused)
	}
}

// Close closes connections that are idle.
func (c *Client) Close() { c.Set(nil, 0) }

// Resolve implements engine.Resolver. It sends at most one request to each provider,
// all at the same time.
func (c *Client) Resolve(ctx context.Context, questions []engine.Question, dryRun bool) []engine.Answer {
	out := make([]engine.Answer, len(questions))
	groups := map[string]*group{}
	var order []*group
	for i, q := range questions {
		g := groups[q.Source]
		if g == nil {
			g = &group{name: q.Source}
			groups[q.Source], order = g, append(order, g)
		}
		g.keys, g.at = append(g.keys, q.Key), append(g.at, i)
	}
	c.mu.RLock()
	for _, g := range order {
		g.endpoint = c.endpoints[g.name]
	}
	c.mu.RUnlock()
	began := time.Now()
	for _, g := range order {
		g.start(c, dryRun)
	}
	for _, g := range order {
		g.finish(ctx, c, out, began)
	}
	return out
}

// group are the questions of one Resolve to one provider.
type group struct {
	name     string
	endpoint *endpoint
	keys     []string
	at       []int // of the answers

	tickets []ticket // by key
	err     error    // for all keys
}

// start finds out which keys have to be asked for, and calls the provider with them.
func (g *group) start(c *Client, dryRun bool) {
	switch {
	case g.endpoint == nil:
		g.err = failed(g.name, Unknown, "there is no valid Provider of this name")
		return
	case dryRun && !g.endpoint.provider.NoSideEffects:
		g.err = failed(g.name, DryRun, "not asked in a dry run: it may have side effects; the annotation %s: None on the Provider says that it has none", legacy.SideEffectsAnnotation)
		return
	}
	g.tickets = g.endpoint.fly(c.cache, g.keys)
}

// finish waits for the answers.
func (g *group) finish(ctx context.Context, c *Client, out []engine.Answer, began time.Time) {
	failures := 0
	var ways [engine.Shared + 1]int
	for i, at := range g.at {
		answer := engine.Answer{Err: g.err}
		if g.err == nil {
			answer = g.tickets[i].wait(ctx, g.name, began)
		}
		if answer.Err != nil {
			failures++
		}
		ways[answer.Way]++
		out[at] = answer
	}
	if m := c.options.Metrics; m != nil && g.endpoint != nil {
		m.ProviderAnswered(g.name, ways[engine.Cached], ways[engine.Shared], failures)
	}
}

// wait returns the answer of a flight, or an error when ctx ends before. An answer that
// is there counts.
func (t ticket) wait(ctx context.Context, provider string, began time.Time) (answer engine.Answer) {
	select {
	case <-t.done:
	default:
		select {
		case <-t.done:
		case <-ctx.Done():
			err := failed(provider, Timeout, "no answer before the request's own time was over")
			return engine.Answer{Err: err, Way: t.way, Took: time.Since(began)}
		}
	}
	answer = t.answer
	answer.Way, answer.Took = t.way, max(0, t.ended.Sub(began))
	return answer
}
