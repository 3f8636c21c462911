package webhook

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestProfilingIsForLoopbackOnly(t *testing.T) {
	for _, addr := range []string{"", ":6060", "0.0.0.0:6060", "[::]:6060", "10.0.0.1:6060", "mapd.example.com:6060", "127.0.0.1", "localhost.example.com:6060"} {
		if err := Profiling(t.Context(), addr); err == nil || !strings.HasPrefix(err.Error(), "profiling address ") {
			t.Errorf("Profiling(%q) = %v, want a refusal", addr, err)
		}
	}
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := profile(t.Context(), l); err == nil {
		t.Error("a name that stands for another address is served")
	}
}

func TestProfiling(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := Profiling(t.Context(), l.Addr().String()); err == nil || !strings.HasPrefix(err.Error(), "profiling: ") {
		t.Errorf("Profiling on a port in use = %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- profile(ctx, l) }()
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+l.Addr().String()+"/debug/pprof/goroutine?debug=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), "TestProfiling") {
		t.Errorf("answer %d, %v: %.100s", resp.StatusCode, err, body)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("profile = %v after it was told to stop", err)
	}
}
