// Package monitoring answers one question: do the alerts of manifests/monitoring fire when
// they should, and only then? It runs them in Prometheus' own rule manager, as promtool
// does. It is a module of its own, so that no other package links Prometheus.
package monitoring

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"go.yaml.in/yaml/v2"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const (
	alertsFile    = "../../manifests/monitoring/alerts.yaml"
	dashboardFile = "../../manifests/monitoring/dashboard.json"
)

// unitTests is promtool's format of unit tests, as far as it is used here.
type unitTests struct {
	RuleFiles          []string       `yaml:"rule_files"`
	EvaluationInterval model.Duration `yaml:"evaluation_interval"`
	Tests              []struct {
		Name     string         `yaml:"name"`
		Interval model.Duration `yaml:"interval"`
		Series   []struct {
			Series string `yaml:"series"`
			Values string `yaml:"values"`
		} `yaml:"input_series"`
		Alerts []struct {
			EvalTime model.Duration `yaml:"eval_time"`
			Name     string         `yaml:"alertname"`
			Want     []struct {
				Labels map[string]string `yaml:"exp_labels"`
			} `yaml:"exp_alerts"`
		} `yaml:"alert_rule_test"`
	} `yaml:"tests"`
}

// TestAlerts runs testdata/alerts_test.yaml. Each alert of the rules has a test in which
// it fires and one in which it does not.
func TestAlerts(t *testing.T) {
	data, err := os.ReadFile("testdata/alerts_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all unitTests
	if err := yaml.UnmarshalStrict(data, &all); err != nil {
		t.Fatal(err)
	}
	type seen struct{ fires, quiet bool }
	tested := map[string]seen{}
	for _, test := range all.Tests {
		t.Run(test.Name, func(t *testing.T) {
			load := "load " + test.Interval.String() + "\n"
			for _, s := range test.Series {
				load += "  " + s.Series + " " + s.Values + "\n"
			}
			p := parser.NewParser(parser.Options{})
			suite, err := promqltest.NewLazyLoader(load, promqltest.LazyLoaderOpts{Parser: p})
			if err != nil {
				t.Fatal(err)
			}
			defer suite.Close()
			m := rules.NewManager(&rules.ManagerOptions{
				QueryFunc:    rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage()),
				AppendableV2: suite.Storage(),
				Context:      t.Context(),
				NotifyFunc:   func(context.Context, string, ...*rules.Alert) {},
				Logger:       promslog.NewNopLogger(),
				Parser:       p,
			})
			groups, errs := m.LoadGroups(time.Duration(test.Interval), labels.EmptyLabels(), "", nil, false, alertsFile)
			if errs != nil {
				t.Fatal(errs)
			}
			at := func(now time.Time) {
				for _, g := range groups {
					g.Eval(suite.Context(), now)
					for _, r := range g.Rules() {
						if err := r.LastError(); err != nil {
							t.Fatalf("%s: %v", r.Name(), err)
						}
					}
				}
			}
			now, step := time.Unix(0, 0).UTC(), time.Duration(all.EvaluationInterval)
			for _, want := range test.Alerts { // in the order of their times
				for ; !now.After(time.Unix(0, 0).Add(time.Duration(want.EvalTime))); now = now.Add(step) {
					suite.WithSamplesTill(now, func(err error) {
						if err != nil {
							t.Fatal(err)
						}
						at(now)
					})
				}
				var got, expected []map[string]string
				for _, g := range groups {
					for _, r := range g.AlertingRules() {
						if r.Name() != want.Name {
							continue
						}
						for _, a := range r.ActiveAlerts() {
							if a.State == rules.StateFiring {
								of := a.Labels.Map()
								delete(of, "alertname")
								got = append(got, of)
							}
						}
					}
				}
				for _, w := range want.Want {
					expected = append(expected, w.Labels)
				}
				if diff := cmp.Diff(expected, got); diff != "" {
					t.Errorf("%s after %s (- want):\n%s", want.Name, want.EvalTime, diff)
				}
				s := tested[want.Name]
				s.fires, s.quiet = s.fires || len(want.Want) > 0, s.quiet || len(want.Want) == 0
				tested[want.Name] = s
			}
		})
	}
	m := rules.NewManager(&rules.ManagerOptions{Context: t.Context(), Logger: promslog.NewNopLogger()})
	groups, errs := m.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, alertsFile)
	if errs != nil {
		t.Fatal(errs)
	}
	names := map[string]bool{}
	for _, g := range groups {
		for _, r := range g.AlertingRules() {
			names[r.Name()] = true
			if s := tested[r.Name()]; !s.fires || !s.quiet {
				t.Errorf("%s: tested that it fires: %t, that it does not: %t", r.Name(), s.fires, s.quiet)
			}
			if r.Annotations().Get("description") == "" || r.Labels().Get("severity") == "" {
				t.Errorf("%s has no description or no severity", r.Name())
			}
		}
	}
	for name := range tested {
		if !names[name] {
			t.Errorf("%s is tested and does not exist", name)
		}
	}
}

// Expressions of the dashboard are valid PromQL.
func TestDashboard(t *testing.T) {
	data, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	p := parser.NewParser(parser.Options{})
	variable := regexp.MustCompile(`\$\w+`)
	n := 0
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			n++
			expr := variable.ReplaceAllString(strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"), ".*")
			if _, err := p.ParseExpr(expr); err != nil {
				t.Errorf("%s: %s: %v", panel.Title, target.Expr, err)
			}
		}
	}
	if n < 10 {
		t.Errorf("found %d expressions: the dashboard is not read as it is written", n)
	}
}
