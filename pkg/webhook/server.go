package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

const (
	// readHeaderTimeout is for a handshake and a few lines of header; an API
	// server sends them at once, and whoever does not must not hold a connection.
	readHeaderTimeout = 10 * time.Second
	// readTimeout is for the body as well. No API server waits longer than 30 s
	// for the whole call.
	readTimeout = 30 * time.Second
	// writeTimeout counts from the end of the header: reading, deciding for up
	// to 30 s, and writing.
	writeTimeout = readTimeout + maxTimeout + 10*time.Second
	// idleTimeout is longer than the 90 s after which API servers close idle
	// connections themselves, so that we do not close one as it is used again.
	idleTimeout = 2 * time.Minute
	// maxHeader is ample: API servers send a handful of short fields.
	maxHeader = 64 << 10
	// drainTimeout is the default for Server.Drain: as long as any API server
	// waits for an answer.
	drainTimeout = maxTimeout
)

// Server serves a Handler over TLS.
type Server struct {
	Handler *Handler
	// Certificate returns the certificate for a handshake.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Drain bounds how long requests under way may take after Run was told to
	// stop; 0 means 30 s.
	Drain time.Duration
}

// Run serves on l until ctx is done. Then /readyz turns false, l is closed,
// requests under way finish, within Drain, and Run returns nil. It returns an
// error if serving ends before that or some requests had to be cut off. Run
// closes l in any case. A Server runs once.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	log := s.Handler.log
	server := &http.Server{
		Handler:           s.Handler,
		TLSConfig:         TLSConfig(s.Certificate),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		// Handshakes that probes and scanners break off are no news.
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.ServeTLS(l, "", "") }()
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
	log.Info("shutting down", "drain", drain)
	// ctx is done; what is under way gets its time all the same.
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	err := server.Shutdown(limit)
	if err != nil {
		// Shutdown leaves connections open when its time is up. The requests'
		// contexts end with them.
		err = errors.Join(fmt.Errorf("requests were cut off after %s: %w", drain, err), server.Close())
	}
	<-served // http.ErrServerClosed
	return err
}
