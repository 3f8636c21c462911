// Package httpsclient makes the HTTPS clients with which mapd calls servers other than API
// servers: replicas, providers of external data, and hosts of modules. It does not bound the size
// of answers; the caller does.
package httpsclient

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Options configure a client. The zero value requires TLS 1.3 and the authorities of the machine,
// uses no proxy, follows no redirects, and opens a connection for each request.
type Options struct {
	// TLS may have authorities, the server's name or a client certificate; nil: none of them.
	TLS *tls.Config
	// Oldest is the minimum version of TLS; 0 means 1.3.
	Oldest uint16
	// Proxy returns the proxy for a request; nil: no proxy.
	Proxy func(*http.Request) (*url.URL, error)
	// Dial replaces the Dial of a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Redirect decides whether a redirect is followed. If it is nil, redirects are not followed,
	// and the client returns the redirecting answer.
	Redirect func(r *http.Request, via []*http.Request) error
	// Connections bounds the connections to one host, which are reused. 0: each request has its
	// own.
	Connections int
	// HTTP2 allows HTTP/2 if the server supports it.
	HTTP2 bool
	// Timeout bounds a request with its answer; 0: only its context does.
	Timeout time.Duration
}

// maxHeaders bounds the headers of an answer.
const maxHeaders = 64 << 10

// New returns a client.
func New(o Options) *http.Client {
	config := o.TLS.Clone() // nil of nil
	if config == nil {
		config = &tls.Config{}
	}
	config.MinVersion = cmp.Or(o.Oldest, tls.VersionTLS13)
	redirect := o.Redirect
	if redirect == nil {
		redirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return &http.Client{
		CheckRedirect: redirect,
		Timeout:       o.Timeout,
		Transport: &http.Transport{
			TLSClientConfig:        config,
			TLSHandshakeTimeout:    10 * time.Second,
			Proxy:                  o.Proxy,
			DialContext:            o.Dial,
			ForceAttemptHTTP2:      o.HTTP2,
			DisableKeepAlives:      o.Connections == 0,
			MaxConnsPerHost:        o.Connections,
			MaxIdleConnsPerHost:    o.Connections,
			IdleConnTimeout:        90 * time.Second,
			MaxResponseHeaderBytes: maxHeaders,
			DisableCompression:     true,
		},
	}
}
