package webhook

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// defaultConnections is the default for Server.Connections. An API server uses a connection
	// for each review that is being answered, of which it has 200 at most by default
	// (--max-mutating-requests-inflight), and keeps 25 idle ones.
	defaultConnections = 1000
	// patience is how long a connection without a complete request may stay open when another
	// one needs its place. On an idle machine a client needs milliseconds. On a busy one,
	// closing an API server's connection sooner would lose reviews that mapd could have
	// answered.
	patience = 2 * time.Second
)

// connections are the open connections of a server. It bounds their number, in total and from
// each peer. Above the limit it closes, for each new connection, one that has no request. It
// never closes a connection whose request is being answered.
type connections struct {
	net.Listener
	total, perPeer int // limits

	mu    sync.Mutex
	open  map[*guarded]struct{}
	peers map[netip.Prefix]int // how many are open from each
	// closed counts connections that were closed for others, or refused.
	closed int64
}

// guarded is an accepted connection.
type guarded struct {
	net.Conn
	all  *connections
	from netip.Prefix
	// all.mu guards the fields below.
	state connState
	since time.Time
	gone  bool
}

type connState int

const (
	opening connState = iota // a handshake or a header is not complete
	serving                  // a request is under way
	idle                     // it may bring another request
)

// newConnections returns the listener that bounds the connections of l to
// total.
func newConnections(l net.Listener, total int) *connections {
	return &connections{
		Listener: l, total: total, perPeer: total * 3 / 4,
		open: map[*guarded]struct{}{}, peers: map[netip.Prefix]int{},
	}
}

// Accept implements net.Listener.
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if g := c.admit(conn, time.Now()); g != nil {
			return g, nil
		}
		conn.Close() // the error only says that it is closed already
	}
}

// admit returns conn, or nil if there is no room for it.
func (c *connections) admit(conn net.Conn, now time.Time) *guarded {
	g := &guarded{Conn: conn, all: c, from: prefixOf(conn.RemoteAddr().String()), since: now}
	c.mu.Lock()
	defer c.mu.Unlock()
	from := func(o *guarded) bool { return o.from == g.from }
	switch {
	case c.peers[g.from] >= c.perPeer && !c.drop(from, now),
		len(c.open) >= c.total && !c.drop(c.ofBusiestPeer(), now):
		c.closed++
		return nil
	}
	c.peers[g.from]++
	c.open[g] = struct{}{}
	return g
}

// drop closes the least useful of some connections: the one that has been opening for longest,
// if longer than patience, or else the one that has been idle for longest. It reports whether
// there was one. c.mu is held.
func (c *connections) drop(of func(*guarded) bool, now time.Time) bool {
	var worst *guarded
	for g := range c.open {
		if g.state == serving || !of(g) || g.state == opening && now.Sub(g.since) < patience {
			continue
		}
		if worst == nil || g.state < worst.state || g.state == worst.state && g.since.Before(worst.since) {
			worst = g
		}
	}
	if worst == nil {
		return false
	}
	c.closed++
	c.remove(worst)
	go worst.Conn.Close() // the goroutine that serves it ends with a read error
	return true
}

// ofBusiestPeer returns a filter for the connections of the peer that has most.
// c.mu is held.
func (c *connections) ofBusiestPeer() func(*guarded) bool {
	var most netip.Prefix
	n := 0
	for from, open := range c.peers {
		if open > n {
			most, n = from, open
		}
	}
	return func(g *guarded) bool { return g.from == most }
}

// remove forgets a closed connection. c.mu is held.
func (c *connections) remove(g *guarded) {
	if g.gone {
		return
	}
	g.gone = true
	delete(c.open, g)
	if c.peers[g.from]--; c.peers[g.from] == 0 {
		delete(c.peers, g.from)
	}
}

// setState records the state of a connection. c.mu is held.
func (g *guarded) setState(state connState, now time.Time) { g.state, g.since = state, now }

// changed is called as http.Server.ConnState.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	g := guardedOf(conn)
	if g == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateActive:
		if g.state == idle { // a byte of the next request has arrived
			g.setState(opening, time.Now())
		}
	case http.StateIdle:
		g.setState(idle, time.Now())
	case http.StateClosed, http.StateHijacked:
		c.remove(g)
	}
}

// guardedOf returns what Accept returned for a connection of an http.Server.
func guardedOf(conn net.Conn) *guarded {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	g, _ := conn.(*guarded)
	return g
}

// guardedKey is the context key of a request's connection.
type guardedKey struct{}

// context is called as http.Server.ConnContext.
func (c *connections) context(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, guardedKey{}, guardedOf(conn))
}

// handler records in c which requests have begun.
func (c *connections) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g, ok := r.Context().Value(guardedKey{}).(*guarded); ok && g != nil {
			c.mu.Lock()
			g.setState(serving, time.Now())
			c.mu.Unlock()
		}
		next.ServeHTTP(w, r)
	})
}

// state returns how many connections are open, and how many were closed for others since the
// start.
func (c *connections) state() (open int, closed int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open), c.closed
}

// Close implements net.Conn.
func (g *guarded) Close() error {
	g.all.mu.Lock()
	g.all.remove(g)
	g.all.mu.Unlock()
	return g.Conn.Close()
}

// prefixOf returns the key of a peer: its IPv4 address, or the /64 network of its IPv6 address,
// since one machine may have many of these.
func prefixOf(addr string) netip.Prefix {
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		return netip.Prefix{} // a listener without addresses has one peer
	}
	ip := a.Addr().Unmap().WithZone("")
	bits := 64
	if ip.Is4() || ip.IsLoopback() {
		bits = ip.BitLen()
	}
	prefix, _ := ip.Prefix(bits) // both fit
	return prefix
}

const (
	// settled is the time without a request after which a connection counts as idle. A busy
	// client sends its next request much sooner.
	settled = 500 * time.Millisecond
	// drainPoll is how often wait checks whether all connections are idle.
	drainPoll = 10 * time.Millisecond
)

// wait returns when no connection has a request and none is expected to send one soon, or when
// ctx is done.
func (c *connections) wait(ctx context.Context) {
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for !c.quiet() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (c *connections) quiet() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for g := range c.open {
		if g.state == serving || time.Since(g.since) < settled {
			return false
		}
	}
	return true
}
