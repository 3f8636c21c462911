//go:build e2e

package cluster

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
)

// Proxy forwards TCP connections to its targets in turn, as kube-proxy does for a Service. If no
// target accepts a connection, it is reset.
type Proxy struct {
	// Addr is where it listens: 127.0.0.1 and a port.
	Addr string

	mu      sync.Mutex
	targets []string
	next    int
	conns   map[net.Conn]bool
}

// NewProxy starts a proxy that ends with the test.
func NewProxy(t testing.TB, targets ...string) *Proxy {
	t.Helper()
	p := &Proxy{Addr: fmt.Sprintf("127.0.0.1:%d", FreePort(t)), targets: targets, conns: map[net.Conn]bool{}}
	l, err := net.Listen("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.Close()
		p.Cut()
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // the test has ended
			}
			go p.serve(c.(*net.TCPConn))
		}
	}()
	return p
}

// Targets sets the targets of new connections. It does not close existing ones.
func (p *Proxy) Targets(addrs ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets = slices.Clone(addrs)
}

// Cut resets all existing connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		reset(c)
	}
}

func (p *Proxy) serve(in *net.TCPConn) {
	out := p.dial()
	if out == nil {
		reset(in)
		return
	}
	p.mu.Lock()
	p.conns[in], p.conns[out] = true, true
	p.mu.Unlock()
	var both sync.WaitGroup
	copy := func(to, from *net.TCPConn) {
		if _, err := io.Copy(to, from); err != nil {
			// If one side resets the connection, the other side is reset, too.
			reset(to)
			reset(from)
			return
		}
		_ = to.CloseWrite() // fails if the other side has closed the connection already
	}
	both.Go(func() { copy(out, in) })
	both.Go(func() { copy(in, out) })
	both.Wait()
	p.mu.Lock()
	delete(p.conns, in)
	delete(p.conns, out)
	p.mu.Unlock()
	in.Close()
	out.Close()
}

// dial connects to the next target that accepts the connection; it returns nil if none does.
func (p *Proxy) dial() *net.TCPConn {
	p.mu.Lock()
	targets := slices.Clone(p.targets)
	first := p.next
	p.next++
	p.mu.Unlock()
	for i := range targets {
		if c, err := net.Dial("tcp", targets[(first+i)%len(targets)]); err == nil {
			return c.(*net.TCPConn)
		}
	}
	return nil
}

// reset closes a connection such that the other side gets an error and not EOF.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // fails on a closed connection
	}
	c.Close()
}

var ports struct {
	mu   sync.Mutex
	used map[int]bool
}

// FreePort returns a port of 127.0.0.1 on which no program listens. It does not return a port
// twice. The port is below the system's range for outgoing connections, so that it stays free
// while a server restarts.
func FreePort(t testing.TB) int {
	t.Helper()
	ports.mu.Lock()
	defer ports.mu.Unlock()
	if ports.used == nil {
		ports.used = map[int]bool{}
	}
	for range 1000 {
		port := 20000 + rand.IntN(12000)
		if ports.used[port] {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		l.Close()
		ports.used[port] = true
		return port
	}
	t.Fatal("no port of 127.0.0.1 is free")
	return 0
}
