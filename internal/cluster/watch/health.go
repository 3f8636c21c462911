package watch

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/dynamic"
)

const (
	// silence is how long the API server may be silent before Check reports that. Every replica
	// asks for the Lease once a second.
	silence = 10 * time.Second
	// maxUnread bounds how many resources Check names.
	maxUnread = 10
)

// Client is a client whose Mirrors and Objects report to a Health.
type Client struct {
	dynamic.Interface
	Health *Health
}

// Health reports whether the API server answers, and which resources are not being read. It is
// safe for concurrent use.
type Health struct {
	answered atomic.Int64 // time of the server's last answer, in Unix nanoseconds

	mu     sync.Mutex
	follow map[*followed]bool
}

// followed is a resource, or a part of it, that is listed and watched.
type followed struct {
	health   *Health
	resource string
	unread   time.Time // since when it is not being read; zero: it is
	err      error     // the first error since then; nil: there was none
}

// NewHealth returns a Health. The server counts as having answered now.
func NewHealth() *Health {
	h := &Health{follow: map[*followed]bool{}}
	h.answered.Store(time.Now().UnixNano())
	return h
}

// Transport returns a RoundTripper that records every answer of the server, even errors.
func (h *Health) Transport(next http.RoundTripper) http.RoundTripper { return transport{h, next} }

type transport struct {
	health *Health
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err == nil {
		t.health.answered.Store(time.Now().UnixNano())
	}
	return response, err
}

// WrappedRoundTripper returns the RoundTripper that t calls.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// LastContact returns when the server last answered.
func (h *Health) LastContact() time.Time { return time.Unix(0, h.answered.Load()) }

// Connected returns, for every followed resource, whether all its parts are being read.
func (h *Health) Connected() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[string]bool, len(h.follow))
	for f := range h.follow {
		before, more := out[f.resource]
		out[f.resource] = f.unread.IsZero() && (before || !more)
	}
	return out
}

// Check returns an error that says since when the server has not answered, and which resources
// are not being read since when; nil if there is no such problem.
func (h *Health) Check() error {
	var lines []string
	if last := h.LastContact(); time.Since(last) >= silence {
		lines = append(lines, "the API server has not answered since "+stamp(last))
	}
	unread := h.unread()
	for i, f := range unread {
		if i == maxUnread {
			lines = append(lines, fmt.Sprintf("and %d more", len(unread)-i))
			break
		}
		line := f.resource + ": not read since " + stamp(f.unread)
		if f.err != nil {
			line += ": " + f.err.Error()
		}
		lines = append(lines, line)
	}
	if lines == nil {
		return nil
	}
	return fmt.Errorf("%s", strings.Join(lines, "\n"))
}

// unread returns copies of the parts that are not being read, sorted by resource; of each resource
// the one that has not been read for the longest time.
func (h *Health) unread() []followed {
	h.mu.Lock()
	defer h.mu.Unlock()
	longest := map[string]followed{}
	for f := range h.follow {
		if known, ok := longest[f.resource]; !f.unread.IsZero() && (!ok || f.unread.Before(known.unread)) {
			longest[f.resource] = *f
		}
	}
	return slices.SortedFunc(maps.Values(longest), func(a, b followed) int { return cmp.Compare(a.resource, b.resource) })
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// unwrap returns the client within a Client, and its Health; nil for other clients.
func unwrap(client dynamic.Interface) (dynamic.Interface, *Health) {
	if c, ok := client.(*Client); ok {
		return c.Interface, c.Health
	}
	return client, nil
}

// begin adds a resource that has not been read yet. h may be nil.
func (h *Health) begin(resource string) *followed {
	f := &followed{health: h, resource: resource, unread: time.Now()}
	if h != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.follow[f] = true
	}
	return f
}

// end removes the resource.
func (f *followed) end() {
	if f.health != nil {
		f.health.mu.Lock()
		defer f.health.mu.Unlock()
		delete(f.health.follow, f)
	}
}

// note records the outcome of a request.
func (f *followed) note(err error) {
	if f.health == nil {
		return
	}
	f.health.mu.Lock()
	defer f.health.mu.Unlock()
	switch {
	case err == nil:
		f.unread, f.err = time.Time{}, nil
	case f.unread.IsZero():
		f.unread, f.err = time.Now(), err
	case f.err == nil || category(f.err) != category(err):
		f.err = err
	}
}
