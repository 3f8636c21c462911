package webhook

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Metrics say how many passes mutators take, and in shadow what each of them would do; of
// those that are gone they forget it.
func TestLegacyMetrics(t *testing.T) {
	m := NewMetrics()
	acts := func(pass int, o engine.Outcome, err error) engine.Step {
		return engine.Step{Stage: engine.MutatorStage, Round: pass, Policy: "Assign/a", Outcome: o, Err: err, Mutation: 0}
	}
	req := &policy.Request{Operation: "CREATE"}
	on, shadow := engine.Mutators(nil, api.Enforce), engine.Mutators(nil, api.Shadow)
	for _, r := range []engine.Record{
		{Stage: &on, Rounds: 2, Changed: true, Steps: []engine.Step{acts(1, engine.Changed, nil)}},
		{Stage: &on, Steps: []engine.Step{acts(1, engine.Unchanged, nil)}},
		{Stage: &on, Rounds: 1, Status: failure(http.StatusInternalServerError, "no"), Steps: []engine.Step{acts(1, engine.Failed, errors.New("no"))}},
		{Stage: &on},
		{Stage: &on, Rounds: 1, Shadows: []engine.Shadow{
			{Policy: "team", Binding: "all", Steps: []engine.Step{{Policy: "team", Binding: "all", Outcome: engine.Changed}}},
			{Policy: "lax", Binding: "all", Steps: []engine.Step{{Policy: "lax", Binding: "all", Outcome: engine.Failed, Ignored: true}}},
			{Policy: "slow", Status: failure(http.StatusGatewayTimeout, "no time")},
		}},
		{Stage: &shadow, Rounds: 3, Changed: true, Steps: []engine.Step{acts(1, engine.Unchanged, nil), acts(2, engine.Changed, nil)}},
	} {
		d := staged(engine.Decision{}, r)
		m.decision(req, d, time.Millisecond)
	}
	m.decision(req, &engine.Decision{}, time.Millisecond)
	want := `mapd_legacy_passes_count{mode="on",result="mutated"} 1
mapd_legacy_passes_count{mode="on",result="refused"} 1
mapd_legacy_passes_count{mode="on",result="unchanged"} 1
mapd_legacy_passes_count{mode="shadow",result="mutated"} 1
mapd_legacy_passes_sum{mode="on",result="mutated"} 2
mapd_legacy_passes_sum{mode="on",result="refused"} 1
mapd_legacy_passes_sum{mode="on",result="unchanged"} 0
mapd_legacy_passes_sum{mode="shadow",result="mutated"} 3
mapd_shadow_decisions_total{binding="",outcome="changed",policy="Assign/a"} 1
mapd_shadow_decisions_total{binding="",outcome="denied",policy="slow"} 1
mapd_shadow_decisions_total{binding="all",outcome="changed",policy="team"} 1
mapd_shadow_decisions_total{binding="all",outcome="ignored",policy="lax"} 1
`
	if diff := cmp.Diff(want, legacySeries(m)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	m.Prune(func(string, string) bool { return false })
	if got := legacySeries(m); strings.Contains(got, "shadow_decisions") {
		t.Errorf("after Prune:\n%s", got)
	}
}

// legacySeries are the metrics about mutators, without the buckets, sorted.
func legacySeries(m *Metrics) string {
	r := httptest.NewRecorder()
	m.Handler().ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	var b, passes strings.Builder
	for line := range strings.Lines(r.Body.String()) {
		switch {
		case strings.Contains(line, "_bucket{"), strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "mapd_legacy_passes_count"):
			b.WriteString(line)
		case strings.HasPrefix(line, "mapd_legacy_passes_sum"):
			passes.WriteString(line)
		case strings.HasPrefix(line, "mapd_legacy"), strings.HasPrefix(line, "mapd_shadow"):
			b.WriteString(passes.String() + line)
			passes.Reset()
		}
	}
	return b.String()
}
