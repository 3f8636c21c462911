package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// heard is a Writer whose text can be waited for.
type heard struct {
	mu    sync.Mutex
	text  bytes.Buffer
	wrote chan struct{} // has room for one
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case h.wrote <- struct{}{}:
	default:
	}
	return h.text.Write(p)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

func (h *heard) waitFor(t *testing.T, text string) {
	t.Helper()
	late := time.After(time.Minute)
	for !strings.Contains(h.String(), text) {
		select {
		case <-h.wrote:
		case <-late:
			t.Fatalf("waited for %q, there is\n%s", text, h)
		}
	}
}

// With --watch the suites run again when a policy outside their directory changes.
func TestWatchTests(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	policy := readFile(t, "../../docs/tour/authoring/policy.yaml")
	file("policies/policy.yaml", policy)
	file("suites/pod.yaml", readFile(t, "../../docs/tour/authoring/pod.yaml"))
	suite := strings.Replace(readFile(t, "../../docs/tour/authoring/mapd-test.yaml"), "[policy.yaml]", "[../policies]", 1)
	file("suites/mapd-test.yaml", suite)
	out := &heard{wrote: make(chan struct{}, 1)}
	errs := &heard{wrote: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		f := &testFlags{count: 1, watch: true, output: "text"}
		done <- test(ctx, streams{err: errs, out: out}, f, []string{filepath.Join(dir, "suites")})
	}()
	errs.waitFor(t, "waiting for changes\n")
	out.waitFor(t, ": 4 passed\n")
	file("policies/policy.yaml", strings.Replace(policy, `"nobody"`, `"someone"`, 1))
	out.waitFor(t, ": 3 passed, 1 failed\n")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
