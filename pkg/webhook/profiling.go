package webhook

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
)

// Profiling serves /debug/pprof/ over plain HTTP on a loopback address, such as 127.0.0.1:6060,
// until ctx is done; then it returns nil. Any other address is an error: a heap profile can
// contain parts of requests, and clients are not authenticated. Use kubectl port-forward to
// reach it.
func Profiling(ctx context.Context, addr string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("profiling address %q: want host:port", addr)
	}
	if ip := net.ParseIP(host); host != "localhost" && !ip.IsLoopback() {
		return fmt.Errorf("profiling address %q: the host has to be a loopback address", addr)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("profiling: %w", err)
	}
	return profile(ctx, l)
}

func profile(ctx context.Context, l net.Listener) error {
	// A hosts file may map localhost to another address.
	if tcp, ok := l.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		l.Close()
		return fmt.Errorf("profiling address %q: the host has to be a loopback address", l.Addr())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	// There is no write timeout, since the client chooses the duration of a profile.
	server := &http.Server{Handler: mux, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); ctx.Err() == nil {
		return fmt.Errorf("profiling: %w", err)
	}
	return nil
}
