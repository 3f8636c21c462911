package download

import (
	"context"
	"crypto/tls"
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

	"github.com/mapd-project/mapd/internal/httpsclient"
)

// sources decide from which hosts modules may be fetched. The author of a policy may have rights
// in one namespace only, and registries name further hosts themselves: in redirects, and as the
// server that issues tokens. So every request is checked and, after the host name has been
// resolved, every address that is dialed. A proxy resolves names itself, so for requests through
// a proxy only the addresses in URLs are checked.
type sources struct {
	listed   []string // host or host:port; empty: all hosts
	insecure []string // allowed with any address; unlike listed, it excludes no other host
	proxy    func(*url.URL) (*url.URL, error)
}

// CheckSources returns an error for the first of Options.Sources that is not a host.
func CheckSources(listed []string) error {
	for _, l := range listed {
		if u, err := url.Parse("https://" + l); err != nil || u.Host != l || u.Hostname() == "" {
			return fmt.Errorf("%q must be a host or host:port, such as ghcr.io", l)
		}
	}
	return nil
}

func newSources(listed, insecure []string) *sources {
	return &sources{listed, insecure, httpproxy.FromEnvironment().ProxyFunc()}
}

// has reports whether a host, with its port, is in one of the lists.
func (s *sources) has(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	return slices.ContainsFunc(slices.Concat(s.listed, s.insecure), func(l string) bool {
		return strings.EqualFold(l, host) || strings.EqualFold(l, name)
	})
}

// unlisted returns an error if there is a list and a host, with its port, is not in it.
func (s *sources) unlisted(host string) error {
	if len(s.listed) == 0 || s.has(host) {
		return nil
	}
	return fmt.Errorf("%s is not among the sources of modules: list it with --module-source", strings.TrimSuffix(host, ":443"))
}

// check returns an error if requests to a host, with its port, are not allowed. It cannot check
// the addresses of a host name.
func (s *sources) check(host string) error {
	switch {
	case s.has(host):
		return nil
	case len(s.listed) > 0:
		return s.unlisted(host)
	case s.isProxy(host):
		return fmt.Errorf("%s is the proxy through which modules are fetched, and not a source of modules", host)
	}
	if _, err := netip.ParseAddrPort(host); err == nil {
		return public(host)
	}
	return nil
}

// maxConnections bounds the connections to one host.
const maxConnections = 16

// client returns a client that connects to allowed sources only.
func (s *sources) client() *http.Client {
	c := httpsclient.New(httpsclient.Options{
		Oldest: tls.VersionTLS12, HTTP2: true, Connections: maxConnections, Redirect: CheckRedirect, Dial: s.dial,
		Proxy: func(r *http.Request) (*url.URL, error) { return s.proxy(r.URL) },
	})
	c.Transport = checking{s, c.Transport}
	return c
}

// checking is a RoundTripper that refuses requests to hosts that are not allowed.
type checking struct {
	*sources
	next http.RoundTripper
}

func (c checking) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := c.check(withPort(r.URL)); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	return c.next.RoundTrip(r)
}

// withPort returns the host of a URL with its port, or the default port of the scheme.
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

// isProxy reports whether an address is that of a proxy from the environment.
func (s *sources) isProxy(address string) bool {
	for _, scheme := range []string{"https", "http"} {
		if u, err := s.proxy(&url.URL{Scheme: scheme, Host: "proxy.invalid"}); err == nil && u != nil && withPort(u) == address {
			return true
		}
	}
	return false
}

// special are networks that net/netip does not distinguish from public ones (RFC 6890): addresses
// that providers share between customers, for benchmarks and reserved, and those that embed an
// IPv4 address in an IPv6 address.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2002::/16"),
}

// public returns an error if an address is not public: of this machine, link-local, or private as
// those of clusters and nodes are.
func public(address string) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := a.Addr().Unmap().WithZone("")
	if ip.IsGlobalUnicast() && !ip.IsPrivate() && !slices.ContainsFunc(special, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return nil
	}
	return fmt.Errorf("%s is an address of this machine or of a private network: modules are fetched from there only if their host is listed with --module-source", ip)
}
