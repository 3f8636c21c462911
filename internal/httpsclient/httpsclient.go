// Package httpsclient makes the clients with which mapd asks servers other than API
// servers: replicas, providers of external data, and hosts that have modules. It does not
// read answers: who asks bounds them.
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

// Options say who is asked, and how. With the zero value TLS 1.3 and the authorities of the
// machine are required, no proxy is used, no redirect is followed, and each request has a
// connection of its own.
type Options struct {
	// TLS has the authorities, the name of the server or the client's certificate; nil has
	// none of them.
	TLS *tls.Config
	// Oldest is the oldest version of TLS, 0 for 1.3.
	Oldest uint16
	// Proxy returns the proxy for a request. Nil: there is none.
	Proxy func(*http.Request) (*url.URL, error)
	// Dial connects instead of a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Redirect decides whether a redirect is followed. Nil: none is, and the answer that
	// redirects is the answer.
	Redirect func(r *http.Request, via []*http.Request) error
	// Connections bounds those to one host; they are used again. 0: each request has its own.
	Connections int
	// HTTP2 is used if the server has it.
	HTTP2 bool
	// Timeout bounds a request with its answer; 0: its context alone does.
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
