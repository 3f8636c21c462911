package webhook

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

type watchState struct {
	contact   time.Time
	connected map[string]bool
}

func (s *watchState) LastContact() time.Time     { return s.contact }
func (s *watchState) Connected() map[string]bool { return s.connected }

func linesOf(m *Metrics, prefix string) []string {
	w := httptest.NewRecorder()
	m.handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	var lines []string
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// Resources that are no longer followed have no series.
func TestWatchMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMetrics()
		if got := linesOf(m, "mapd_watch_"); got != nil {
			t.Errorf("without a cluster: %v", got)
		}
		s := &watchState{time.Now(), map[string]bool{"a": true, "b": false}}
		m.Watch(s)
		time.Sleep(90 * time.Second)
		want := []string{`mapd_watch_connected{resource="a"} 1`, `mapd_watch_connected{resource="b"} 0`, `mapd_watch_last_contact_seconds 90`}
		if got := linesOf(m, "mapd_watch_"); !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
		s.connected = map[string]bool{"b": true}
		want = []string{`mapd_watch_connected{resource="b"} 1`, `mapd_watch_last_contact_seconds 90`}
		if got := linesOf(m, "mapd_watch_"); !slices.Equal(got, want) {
			t.Errorf("got %v", got)
		}
	})
}

// A policy without a breaker has no series.
func TestBreakerMetrics(t *testing.T) {
	m := NewMetrics()
	m.BreakersPublished(map[string]bool{"a": true, "b": false})
	want := []string{`mapd_breaker_tripped{policy="a"} 1`, `mapd_breaker_tripped{policy="b"} 0`}
	if got := linesOf(m, "mapd_breaker_"); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	m.BreakersPublished(nil)
	if got := linesOf(m, "mapd_breaker_"); got != nil {
		t.Errorf("of policies that are gone: %v", got)
	}
}
