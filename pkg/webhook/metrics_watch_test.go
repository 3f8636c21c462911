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

// The outcome of an audit is there while the replica has the Lease, without the policies
// that have gone since. Two of one name count together.
func TestAuditMetrics(t *testing.T) {
	m := NewMetrics()
	if got := linesOf(m, "mapd_audit_"); got != nil {
		t.Errorf("without an audit: %v", got)
	}
	m.Prune(func(string, string) bool { return false })
	m.AuditEnded(&Audited{
		Objects: 7, Unread: 1, UnreadableKinds: 2, Ended: time.UnixMilli(1500), Took: 2 * time.Second,
		Policies: []AuditedPolicy{{"a\"\n", "b", "shadow", 2, 0}, {"a\"\n", "b", "shadow", 1, 0}, {"gone", "b", "enforce", 1, 2}},
	})
	want := []string{
		`mapd_audit_duration_seconds 2`,
		`mapd_audit_failed{binding="",mode="",policy=""} 1`,
		`mapd_audit_failed{binding="b",mode="enforce",policy="gone"} 2`,
		`mapd_audit_failed{binding="b",mode="shadow",policy="a\"\n"} 0`,
		`mapd_audit_last_run_timestamp_seconds 1.5`,
		`mapd_audit_objects 7`,
		`mapd_audit_unreadable_kinds 2`,
		`mapd_audit_would_change{binding="b",mode="enforce",policy="gone"} 1`,
		`mapd_audit_would_change{binding="b",mode="shadow",policy="a\"\n"} 3`,
	}
	if got := linesOf(m, "mapd_audit_"); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	m.Prune(func(policy, _ string) bool { return policy != "gone" })
	if got := linesOf(m, "mapd_audit_would_change"); len(got) != 1 {
		t.Errorf("got %q", got)
	}
	m.AuditEnded(nil)
	if got := linesOf(m, "mapd_audit_"); got != nil {
		t.Errorf("without the Lease: %v", got)
	}
}

// A replica without a sink has no series of one.
func TestRecordSinkMetrics(t *testing.T) {
	m := NewMetrics()
	if got := linesOf(m, "mapd_record_sink_"); got != nil {
		t.Errorf("without a sink: %v", got)
	}
	m.RecordSink(func() (sent, dropped uint64) { return 3, 4 })
	want := []string{`mapd_record_sink_entries_total{result="dropped"} 4`, `mapd_record_sink_entries_total{result="sent"} 3`}
	if got := linesOf(m, "mapd_record_sink_"); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}
