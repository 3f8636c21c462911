package download

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/http/httpproxy"
)

// sources decide which hosts are asked for modules. The reference of a module may be written
// by somebody who may write policies of one namespace only, and registries name further
// hosts themselves: in redirects, and as the place that gives tokens. So each request is
// decided on, and each address when it is dialed, after the name was looked up.
type sources struct {
	listed []string // host or host:port; empty: all hosts
	proxy  func(*url.URL) (*url.URL, error)
}

func newSources(listed []string) *sources {
	return &sources{listed: listed, proxy: httpproxy.FromEnvironment().ProxyFunc()}
}

// has reports whether a host, with its port, is listed.
func (s *sources) has(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	return slices.ContainsFunc(s.listed, func(l string) bool { return strings.EqualFold(l, host) || strings.EqualFold(l, name) })
}

// client returns a client that asks only these sources. open are hosts that are listed besides,
// and do not close the list for others.
func (s *sources) client(open []string) *http.Client {
	known := &sources{listed: slices.Concat(s.listed, open), proxy: s.proxy}
	t := &http.Transport{
		Proxy:       func(r *http.Request) (*url.URL, error) { return s.proxy(r.URL) },
		DialContext: known.dial, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
	}
	return &http.Client{Transport: asking{s, known, t}, CheckRedirect: CheckRedirect}
}

// asking refuses requests to hosts that are not listed, if any is.
type asking struct {
	closed, known *sources
	next          http.RoundTripper
}

func (a asking) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(a.closed.listed) > 0 && !a.known.has(withPort(r.URL)) {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, fmt.Errorf("%s is not among the sources of modules: list it with --module-source", r.URL.Host)
	}
	return a.next.RoundTrip(r)
}

// withPort returns the host of a URL with the port that is asked.
func withPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	if u.Scheme == "http" {
		return net.JoinHostPort(u.Hostname(), "80")
	}
	return net.JoinHostPort(u.Hostname(), "443")
}

func (s *sources) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	if !s.has(address) && !s.isProxy(address) {
		d.Control = func(_, address string, _ syscall.RawConn) error { return public(address) }
	}
	return d.DialContext(ctx, network, address)
}

// isProxy reports whether an address is that of the proxy of the environment.
func (s *sources) isProxy(address string) bool {
	for _, scheme := range []string{"https", "http"} {
		if u, err := s.proxy(&url.URL{Scheme: scheme, Host: "proxy.invalid"}); err == nil && u != nil && withPort(u) == address {
			return true
		}
	}
	return false
}

// shared are the addresses that providers share between customers (RFC 6598), from which some
// clusters take theirs.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// public returns an error unless an address is one of the public network: not of this
// machine, of its link, or private, as those of clusters and their nodes are.
func public(address string) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := a.Addr().Unmap()
	if ip.IsGlobalUnicast() && !ip.IsPrivate() && !shared.Contains(ip) {
		return nil
	}
	return fmt.Errorf("%s is an address of this machine or of a private network: modules are fetched from there only if their host is listed with --module-source", ip)
}
