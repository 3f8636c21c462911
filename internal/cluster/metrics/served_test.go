package metrics

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/yaml"
)

var (
	selector  = regexp.MustCompile(`\b((?:mapd|process)_[a-z_]+)(\{[^}]*\})?`)
	matcher   = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
	grouping  = regexp.MustCompile(`by \(([^)]*)\)`)
	histogram = regexp.MustCompile(`_(?:bucket|sum|count)$`)
	alertRow  = regexp.MustCompile("(?m)^\\| `(Mapd\\w+)` \\| `(.*)` \\| (\\w*) \\| (.*) \\|$")
)

// ofTarget are the labels that Prometheus adds to what it reads from a replica.
var ofTarget = []string{"pod", "instance", "job", "le"}

// served returns the labels of each metric that a server has.
func served(t *testing.T) map[string][]string {
	t.Helper()
	m := New()
	descs := make(chan *prometheus.Desc)
	go func() {
		m.Registry().Describe(descs)
		close(descs)
	}()
	all := map[string][]string{}
	for d := range descs {
		parts := metricDesc.FindStringSubmatch(d.String())
		if parts == nil {
			t.Fatalf("%s is not read as it is written", d)
		}
		all[parts[1]] = strings.FieldsFunc(parts[2], func(r rune) bool { return r == ',' })
	}
	return all
}

// alerts are those of manifests/monitoring.
func alerts(t *testing.T) (all []struct {
	Alert, Expr, For string
	Annotations      struct{ Description string }
}) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For string
				Annotations      struct{ Description string }
			}
		}
	}
	if err := yaml.Unmarshal(readManifest(t, "alerts.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func readManifest(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("../../../manifests/monitoring/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Alerts and dashboard use metrics and labels that mapd serves. That their expressions are
// PromQL is tested in test/monitoring.
func TestMonitoringUsesWhatIsServed(t *testing.T) {
	metrics := served(t)
	exprs := map[string]string{}
	for _, a := range alerts(t) {
		exprs[a.Alert] = a.Expr
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(readManifest(t, "dashboard.json"), &board); err != nil {
		t.Fatal(err)
	}
	for _, p := range board.Panels {
		for _, target := range p.Targets {
			exprs[p.Title] += target.Expr + "\n"
		}
	}
	if len(exprs) < 25 {
		t.Fatalf("%d expressions: the files are not read as they are written", len(exprs))
	}
	for of, expr := range exprs {
		known := slices.Clone(ofTarget)
		for _, m := range selector.FindAllStringSubmatch(expr, -1) {
			name := m[1]
			labels, ok := metrics[name]
			if !ok {
				name = histogram.ReplaceAllString(name, "")
				labels, ok = metrics[name]
			}
			if !ok {
				t.Errorf("%s: mapd serves no metric %s", of, m[1])
			}
			known = append(known, labels...)
			for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(labels, l[1]) && !slices.Contains(ofTarget, l[1]) {
					t.Errorf("%s: %s has the labels %v and not %s", of, name, labels, l[1])
				}
			}
		}
		if strings.Contains(expr, "apiserver_") {
			continue // the API server's
		}
		for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
			for label := range strings.SplitSeq(g[1], ", ") {
				if !slices.Contains(known, label) {
					t.Errorf("%s: by %s, of %v", of, label, known)
				}
			}
		}
	}
}

// docs/operate/observe.md has every metric of mapd's, with its labels, and every alert as it is.
func TestOperateHasMetricsAndAlerts(t *testing.T) {
	data, err := os.ReadFile("../../../docs/operate/observe.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	rows := map[string][4]string{}
	for _, m := range alertRow.FindAllStringSubmatch(page, -1) {
		rows[m[1]] = [4]string{strings.ReplaceAll(m[2], `\|`, "|"), m[3], m[4]}
	}
	for _, a := range alerts(t) {
		if got, want := rows[a.Alert], ([4]string{a.Expr, a.For, a.Annotations.Description}); got != want {
			t.Errorf("docs/operate/observe.md has for the alert %s\n%q, want\n%q", a.Alert, got, want)
		}
		delete(rows, a.Alert)
	}
	for name := range rows {
		t.Errorf("docs/operate/observe.md has an alert %s, which does not exist", name)
	}
	metrics := served(t)
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		if strings.HasPrefix(name, "mapd_") && !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/operate/observe.md does not have the metric %s", name)
		}
	}
}
