package webhook

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

// namingLabels are the labels whose values name objects that come and go, and
// listedLabels those that have a fixed list of values.
var (
	namingLabels = []string{"policy", "policy_binding", "binding", "provider", "resource"}
	listedLabels = []string{"operation", "result", "outcome", "error_type", "path", "code", "reason", "mode", "state", "how", "version"}
)

// fixedMetrics have a label that names something in other metrics, and a list of values.
var fixedMetrics = []string{"mapd_validations_total"}

// metricDesc finds a metric and its labels, as a prometheus.Desc prints them.
var metricDesc = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

// No metric has a series of a policy, binding, provider or resource that is gone. The test
// looks at whatever is registered: a metric with such a label that is not counted here, or
// whose series stay, makes it fail.
func TestNoSeriesOfWhatIsGone(t *testing.T) {
	m := NewMetrics()
	watches := &watchState{connected: map[string]bool{"gone": true, "kept": false}}
	m.Watch(watches)
	m.SnapshotPublished(2, 2, 0)
	m.BreakersPublished(map[string]bool{"gone": true, "kept": true})
	m.ProvidersPublished([]string{"gone", "kept"}, 0)
	step := func(name, binding string, o engine.Outcome, ignored bool) engine.Step {
		s := engine.Step{Stage: engine.PolicyStage, Round: 1, Policy: name, Binding: binding, Outcome: o, Ignored: ignored}
		if o == engine.Failed {
			s.Err = errors.New("no")
		}
		return s
	}
	count := func(name string) {
		m.AuditEnded(&Audited{Policies: []AuditedPolicy{{Policy: "kept", Mode: "enforce"}, {Policy: name, Binding: name, Mode: "warn"}}})
		m.ProviderCalled(name, "ok", 1, time.Millisecond)
		m.ProviderAnswered(name, 1, 1, 1)
		policies, mutators := engine.Policies(nil), engine.Mutators(nil, api.Shadow)
		for _, binding := range []string{"", name} {
			for _, one := range []engine.Step{
				step(name, binding, engine.Changed, false), step(name, binding, engine.Unchanged, false), step(name, binding, engine.Skipped, false),
				step(name, binding, engine.Failed, false), step(name, binding, engine.Failed, true),
			} {
				steps := []engine.Step{one}
				d := &engine.Decision{Steps: steps, Stages: []engine.Record{{Stage: &policies, Steps: steps, Shadows: []engine.Shadow{
					{Policy: name, Binding: binding, Steps: steps}, {Policy: name, Binding: binding, Status: failure(http.StatusGatewayTimeout, "no time")},
				}}, {Stage: &mutators, Steps: steps}}}
				m.decision(&policy.Request{Operation: "CREATE"}, d, time.Millisecond)
			}
		}
	}
	count("kept")
	count("gone")

	descs := make(chan *prometheus.Desc)
	go func() {
		m.registry.Describe(descs)
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
		if names && !slices.Contains(fixedMetrics, found[1]) {
			naming = append(naming, found[1])
		}
	}
	if len(naming) < 8 {
		t.Fatalf("only %v have labels with names: they are not read as they are written", naming)
	}
	has := func(metric, name string) bool {
		return slices.ContainsFunc(linesOf(m, metric), func(line string) bool {
			return !strings.HasPrefix(line, "#") && strings.Contains(line, `"`+name+`"`)
		})
	}
	check := func(when string, want map[string]bool) {
		t.Helper()
		for _, metric := range naming {
			for name, is := range want {
				if has(metric, name) != is {
					t.Errorf("%s, %s has a series of what is %s: %t", when, metric, name, !is)
				}
			}
		}
	}
	check("before", map[string]bool{"gone": true, "kept": true})

	m.Prune(func(policy, _ string) bool { return policy == "kept" })
	m.BreakersPublished(map[string]bool{"kept": true})
	m.ProvidersPublished([]string{"kept"}, 0)
	watches.connected = map[string]bool{"kept": true}
	check("after", map[string]bool{"gone": false, "kept": true})
	if left := slices.DeleteFunc(linesOf(m, ""), func(line string) bool { return !strings.Contains(line, `"gone"`) }); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	// A request that was under way, and what is done about it.
	count("gone")
	m.Prune(func(policy, _ string) bool { return policy == "kept" })
	check("after the last requests", map[string]bool{"gone": false, "kept": true})
}
