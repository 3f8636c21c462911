package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// readHeaderTimeout bounds a handshake and a few lines of header. An API
	// server sends them at once; a slower client must not hold a connection.
	readHeaderTimeout = 10 * time.Second
	// readTimeout includes the body. No API server waits longer than 30 s for
	// the whole call.
	readTimeout = 30 * time.Second
	// writeTimeout counts from the end of the header: reading, deciding for up
	// to 30 s, and writing.
	writeTimeout = readTimeout + maxTimeout + 10*time.Second
	// idleTimeout is longer than the 90 s after which API servers close idle connections
	// themselves, so that the server does not close one that a client is about to use.
	idleTimeout = 2 * time.Minute
	// maxHeader is sufficient: API servers send a few short fields, and perhaps a token. A
	// header of the shortest fields takes twenty times its length in memory.
	maxHeader = 12 << 10
	// drainTimeout is the default for Server.Drain: as long as any API server
	// waits for an answer.
	drainTimeout = maxTimeout
)

// Server serves a Handler over TLS. If the Handler has ClientCAs, the server
// asks clients for a certificate: one that is not signed by them ends the
// handshake, and the Handler decides which paths need one.
type Server struct {
	Handler *Handler
	// Certificate returns the certificate for a handshake.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Delay is how long Run still accepts connections after ctx is done, for clients that do
	// not know yet that the server stops.
	Delay time.Duration
	// Connections bounds the number of connections, three quarters of it from one address.
	// 0 means 1,000.
	Connections int
	// Drain bounds how long requests may take to finish after Delay; 0 means 30 s.
	Drain time.Duration
}

// Run serves on l until ctx is done. Then /readyz fails, and every response asks the client to
// close its connection. After Delay, Run closes l. It waits, at most for Drain, for requests
// that have begun and for those that arrive on connections that were in use shortly before, and
// returns nil. It returns an error if serving ends earlier or if requests had to be cut off.
// Run closes l in any case. A Server can run only once.
//
// http.Server.Shutdown alone would lose requests: as soon as it is called, it drops what it
// reads from HTTP/1.1 connections, which API servers use.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	log := s.Handler.log
	conns := newConnections(l, cmp.Or(s.Connections, defaultConnections))
	s.Handler.metrics.watchConnections(conns)
	server := &http.Server{
		Handler:           conns.handler(s.Handler),
		Protocols:         new(http.Protocols),
		TLSConfig:         s.tlsConfig(),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnState:         conns.changed,
		ConnContext:       conns.context,
		// Failed handshakes of probes and scanners are not errors of the server.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	// API servers call webhooks by HTTP/1.1, so that their requests spread over
	// replicas (k8s.io/apiserver/pkg/util/webhook: NextProtos). HTTP/2 would
	// add streams and header tables that a client can fill.
	server.Protocols.SetHTTP1(true)
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(conns, "", "") }()
	log.Info("serving", "address", l.Addr().String())

	select {
	case err := <-served:
		s.Handler.stopping.Store(true)
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	s.Handler.stopping.Store(true)
	drain := s.Drain
	if drain == 0 {
		drain = drainTimeout
	}
	log.Info("shutting down", "delay", s.Delay, "drain", drain)
	if s.Delay > 0 {
		select {
		case err := <-served:
			return fmt.Errorf("serve: %w", err)
		case <-time.After(s.Delay):
		}
	}
	// ctx is done, but requests that have begun may finish within drain.
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	l.Close() // the error only says that it is closed already
	<-served
	conns.wait(limit)
	err := server.Shutdown(limit)
	if err != nil {
		// Shutdown leaves connections open when its time is up. Close also ends the requests'
		// contexts.
		err = errors.Join(fmt.Errorf("requests were cut off after %s: %w", drain, err), server.Close())
	}
	log.Info("stopped")
	return err
}

func (s *Server) tlsConfig() *tls.Config {
	config := TLSConfig(s.Certificate)
	clientCAs := s.Handler.clientCAs
	if clientCAs == nil {
		return config
	}
	config.NextProtos = []string{"http/1.1"} // as http.Server sets it for config itself
	// A session ticket would stay valid after the client's authority was removed.
	config.SessionTicketsDisabled = true
	asking := config.Clone()
	asking.ClientAuth = tls.VerifyClientCertIfGiven
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		c := asking.Clone()
		if c.ClientCAs = clientCAs(); c.ClientCAs == nil {
			c.ClientCAs = x509.NewCertPool() // nil would mean those of the system
		}
		return c, nil
	}
	return config
}

// TLSConfig returns a configuration with the certificate that get returns. It requires TLS 1.3,
// which every API server that can call a v1 webhook supports.
func TLSConfig(get func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: get}
}
