package webhook

import (
	"errors"
	"net/http"
	"net/http/httptest"
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
	namingLabels = []string{"policy", "policy_binding", "binding", "resource"}
	listedLabels = []string{"operation", "result", "outcome", "error_type", "path", "code", "reason", "mode", "state", "how", "version"}
)

// fixedMetrics have a label that names something in other metrics, and a list of values.
var fixedMetrics = []string{"mapd_validations_total"}

// metricDesc finds a metric and its labels, as a prometheus.Desc prints them.
var metricDesc = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

// No metric of reviews has a series of a policy or binding that is gone. The test
// looks at whatever is registered: a metric with such a label that is not counted here, or
// whose series stay, makes it fail.
func TestNoSeriesOfWhatIsGone(t *testing.T) {
	m := NewMetrics()
	step := func(name, binding string, o engine.Outcome, ignored bool) engine.Step {
		s := engine.Step{Stage: engine.PolicyStage, Round: 1, Policy: name, Binding: binding, Outcome: o, Ignored: ignored}
		if o == engine.Failed {
			s.Err = errors.New("no")
		}
		return s
	}
	count := func(name string) {
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
	if len(naming) < 4 {
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
	check("after", map[string]bool{"gone": false, "kept": true})
	if left := slices.DeleteFunc(linesOf(m, ""), func(line string) bool { return !strings.Contains(line, `"gone"`) }); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	// A request that was under way, and what is done about it.
	count("gone")
	m.Prune(func(policy, _ string) bool { return policy == "kept" })
	check("after the last requests", map[string]bool{"gone": false, "kept": true})
}

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
