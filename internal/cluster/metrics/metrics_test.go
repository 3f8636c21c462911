package metrics

import (
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type watchState struct {
	contact   time.Time
	connected map[string]bool
}

func (s *watchState) LastContact() time.Time     { return s.contact }
func (s *watchState) Connected() map[string]bool { return s.connected }

func linesOf(m *Metrics, prefix string) []string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
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
		m := New()
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
	m := New()
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
	m := New()
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
	m := New()
	if got := linesOf(m, "mapd_record_sink_"); got != nil {
		t.Errorf("without a sink: %v", got)
	}
	m.RecordSink(func() (sent, dropped uint64) { return 3, 4 })
	want := []string{`mapd_record_sink_entries_total{result="dropped"} 4`, `mapd_record_sink_entries_total{result="sent"} 3`}
	if got := linesOf(m, "mapd_record_sink_"); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// Mutators are counted by state; a state that none has any more has no series.
func TestMutatorMetrics(t *testing.T) {
	m := New()
	m.MutatorsPublished(map[string]int{"running": 3, "conflict": 2}, 2)
	want := []string{`mapd_legacy_mutators{state="conflict"} 2`, `mapd_legacy_mutators{state="running"} 3`, "mapd_legacy_shapes 2"}
	if got := linesOf(m, "mapd_legacy_"); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	m.MutatorsPublished(map[string]int{"running": 1}, 1)
	if got := linesOf(m, "mapd_legacy_mutators"); !slices.Equal(got, []string{`mapd_legacy_mutators{state="running"} 1`}) {
		t.Errorf("got %q", got)
	}
}

// The size of a snapshot stays while a newer one fails, and its age grows.
func TestSnapshotMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := New()
		if got := linesOf(m, "mapd_snapshot_age"); !slices.Equal(got, []string{"mapd_snapshot_age_seconds 0"}) {
			t.Errorf("before the first: %q", got)
		}
		m.SnapshotPublished(7, 9, 1, true)
		time.Sleep(3 * time.Second)
		m.SnapshotFailed(3)
		want := []string{
			"mapd_snapshot_age_seconds 3", "mapd_snapshot_bindings 9", "mapd_snapshot_policies 7",
			`mapd_snapshot_reloads_total{result="failed"} 1`, `mapd_snapshot_reloads_total{result="published"} 1`,
		}
		if got := linesOf(m, "mapd_snapshot_"); !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		if got := linesOf(m, "mapd_compile_errors"); !slices.Equal(got, []string{"mapd_compile_errors 3"}) {
			t.Errorf("got %q", got)
		}
	})
}

var (
	// namingLabels are those whose values name objects that come and go, and listedLabels
	// those that have a fixed list of values.
	namingLabels = []string{"policy", "binding", "provider", "resource"}
	listedLabels = []string{"result", "mode", "state", "how", "server"} // servers are bounded by internal/cluster/callertoken
	// metricDesc finds a metric and its labels, as a prometheus.Desc prints them.
	metricDesc = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
)

// No metric has a series of a policy, binding, provider or resource that is gone. The test
// looks at whatever this package registers: a metric with such a label that is not counted
// here, or whose series stay, makes it fail.
func TestNoSeriesOfWhatIsGone(t *testing.T) {
	m := New()
	watches := &watchState{connected: map[string]bool{"gone": true, "kept": false}}
	m.Watch(watches)
	m.BreakersPublished(map[string]bool{"gone": true, "kept": true})
	m.ProvidersPublished([]string{"gone", "kept"}, 0)
	count := func(name string) {
		m.AuditEnded(&Audited{Policies: []AuditedPolicy{{Policy: "kept", Mode: "enforce"}, {Policy: name, Binding: name, Mode: "warn"}}})
		m.ExistingPublished([]ExistingObjects{{Policy: "kept", Binding: "kept"}, {Policy: name, Binding: name, Stopped: true}})
		m.ProviderCalled(name, "ok", 1, time.Millisecond)
		m.ProviderAnswered(name, 1, 1, 1)
	}
	count("kept")
	count("gone")
	descs := make(chan *prometheus.Desc)
	go func() {
		for _, c := range m.collectors() {
			c.Describe(descs)
		}
		close(descs)
	}()
	var naming []string // metrics
	for d := range descs {
		found := metricDesc.FindStringSubmatch(d.String())
		if found == nil {
			t.Fatalf("not read as it is written: %s", d)
		}
		names := false
		for label := range strings.SplitSeq(found[2], ",") {
			names = names || slices.Contains(namingLabels, label)
			if label != "" && !slices.Contains(namingLabels, label) && !slices.Contains(listedLabels, label) {
				t.Errorf("%s has the label %s: does it name objects, or has it a fixed list of values?", found[1], label)
			}
		}
		if names {
			naming = append(naming, found[1])
		}
	}
	if len(naming) < 8 {
		t.Fatalf("only %v have labels with names: they are not read as they are written", naming)
	}
	check := func(when string, want map[string]bool) {
		t.Helper()
		for _, metric := range naming {
			for name, is := range want {
				has := slices.ContainsFunc(linesOf(m, metric), func(line string) bool { return strings.Contains(line, `"`+name+`"`) })
				if has != is {
					t.Errorf("%s, %s has a series of what is %s: %t", when, metric, name, !is)
				}
			}
		}
	}
	check("before", map[string]bool{"gone": true, "kept": true})
	forget := func() { m.Prune(func(policy, _ string) bool { return policy == "kept" }) }
	forget()
	m.BreakersPublished(map[string]bool{"kept": true})
	m.ProvidersPublished([]string{"kept"}, 0)
	watches.connected = map[string]bool{"kept": true}
	check("after", map[string]bool{"gone": false, "kept": true})
	// What was under way, and what is done about it.
	count("gone")
	forget()
	check("after the last calls", map[string]bool{"gone": false, "kept": true})
}
