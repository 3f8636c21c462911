package webhook

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

// from is a connection that only has an address.
type from struct {
	net.Conn
	addr   string
	closed chan bool
}

func (f *from) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.addr)) }
func (f *from) Close() error {
	close(f.closed)
	return nil
}

func TestConnections(t *testing.T) {
	type event struct {
		after time.Duration // since the event before
		open  string        // an address that opens a connection, named after its place in the list
		no    bool          // it is refused
		do    int           // otherwise: a connection
		is    connState     // becomes this
	}
	const a, b, c = "192.0.2.1:1", "192.0.2.2:1", "[2001:db8::1]:1"
	long := patience
	// Of 8 connections 6 may be from one address.
	tests := map[string]struct {
		events []event
		closed []int
	}{
		"few": {events: []event{{open: a}, {open: a}, {open: b}, {open: c}}},
		"opening at once": {events: []event{
			{open: a}, {open: a}, {open: a}, {open: a}, {open: a}, {open: a}, {open: a, no: true, after: long - 1}, {open: b},
		}},
		"opening, the oldest for too long": {events: []event{
			{open: a}, {open: a, after: 1}, {open: a}, {open: a}, {open: a}, {open: a}, {open: a, after: long - 1},
		}, closed: []int{0}},
		"opening counts again while the next header arrives": {events: []event{
			{open: a}, {do: 0, is: idle}, {do: 0, is: opening, after: long}, {open: a}, {open: a}, {open: a}, {open: a}, {open: a}, {open: a, no: true, after: long - 1},
		}},
		"too many from one address": {events: []event{
			{open: a}, {do: 0, is: idle}, {open: a}, {do: 1, is: idle, after: 1}, {open: a}, {do: 2, is: serving}, {open: a}, {do: 3, is: serving},
			{open: a}, {do: 4, is: serving}, {open: a}, {do: 5, is: serving}, {open: a, after: 1}, {do: 0, is: idle}, {open: b},
		}, closed: []int{0}},
		"too many that serve": {events: []event{
			{open: a}, {do: 0, is: serving}, {open: a}, {do: 1, is: serving}, {open: a}, {do: 2, is: serving}, {open: a}, {do: 3, is: serving},
			{open: a}, {do: 4, is: serving}, {open: a}, {do: 5, is: serving}, {open: a, no: true, after: time.Hour}, {open: b},
		}},
		"too many in all: the address with most loses one": {events: []event{
			{open: b}, {do: 0, is: idle}, {open: b}, {do: 1, is: idle, after: 1}, {open: c}, {do: 2, is: idle, after: 1}, {open: a, after: 1}, {do: 3, is: idle},
			{open: a}, {do: 4, is: idle, after: 1}, {open: a}, {do: 5, is: idle}, {open: a}, {do: 6, is: serving}, {open: a}, {do: 7, is: serving}, {open: c},
		}, closed: []int{3}},
		"networks of IPv6 are one address": {events: []event{
			{open: c}, {open: "[2001:db8::2]:1"}, {open: c}, {open: c}, {open: c}, {open: c}, {open: "[2001:db8::3]:1", no: true}, {open: "[2001:db8:0:1::1]:1"},
		}},
		"IPv4 in IPv6 is IPv4": {events: []event{
			{open: a}, {open: "[::ffff:192.0.2.1]:1"}, {open: a}, {open: a}, {open: a}, {open: a}, {open: a, no: true}, {open: b},
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			conns := newConnections(nil, 8)
			now := time.Now()
			var all []*guarded
			for i, e := range tt.events {
				now = now.Add(e.after)
				if e.open == "" {
					all[e.do].setState(e.is, now)
					continue
				}
				g := conns.admit(&from{addr: e.open, closed: make(chan bool)}, now)
				if (g == nil) != e.no {
					t.Fatalf("event %d: admitted %v, want %v", i, g != nil, !e.no)
				}
				if g != nil {
					all = append(all, g)
				}
			}
			var closed []int
			for i, g := range all {
				if g.gone {
					<-g.Conn.(*from).closed
					closed = append(closed, i)
				}
			}
			if len(closed) != len(tt.closed) || len(closed) > 0 && closed[0] != tt.closed[0] {
				t.Errorf("closed %v, want %v", closed, tt.closed)
			}
			for _, g := range all {
				if !g.gone {
					g.Close()
				}
			}
			if len(conns.open) != 0 || len(conns.peers) != 0 {
				t.Errorf("%d connections of %d peers are left", len(conns.open), len(conns.peers))
			}
		})
	}
}
