package manifests

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/document/kustomize"
	"github.com/mapd-project/mapd/test/hammer"
)

var update = flag.Bool("update", false, "make the generated files anew")

// TestGenerated holds the files that are made from base to base, or makes them
// anew with -update.
func TestGenerated(t *testing.T) {
	hammer.Alone(t)
	files := map[string][]byte{"install.yaml": bundle(t), "overlays/monitoring/prometheusrule.yaml": prometheusRule(t)}
	for _, name := range []string{"crd-policies.yaml", "crd-bindings.yaml", "crd-exceptions.yaml"} {
		files[filepath.Join("chart/files", name)] = read(t, filepath.Join("base", name))
	}
	for name, want := range files {
		if *update {
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(name); err != nil {
			t.Error(err)
		} else if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is stale; run `go generate ./manifests` (- base, + file):\n%s", name, diff)
		}
	}
}

// bundle concatenates the files of base in the order of its kustomization,
// comments included. kustomize would drop those.
func bundle(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString("# All of mapd for `kubectl apply -f`. Made from manifests/base by `go generate ./manifests`; change it there.\n")
	for _, name := range resources(t, "base") {
		b.WriteString("---\n")
		b.Write(bytes.TrimPrefix(read(t, filepath.Join("base", name)), []byte("---\n")))
	}
	return b.Bytes()
}

// prometheusRule wraps the alerts in an object of the Prometheus Operator's.
func prometheusRule(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteString(`# Made from manifests/monitoring/alerts.yaml by "go generate ./manifests"; change it there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: mapd
  namespace: mapd-system
  labels:
    app.kubernetes.io/name: mapd
    app.kubernetes.io/part-of: mapd
spec:
`)
	for line := range strings.Lines(string(read(t, "monitoring/alerts.yaml"))) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString("  " + line)
		}
	}
	return b.Bytes()
}

// resources lists what the kustomization in dir names. base must not do more
// than list files, or install.yaml would be something else than base.
func resources(t *testing.T, dir string) []string {
	t.Helper()
	var k struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Resources  []string `json:"resources"`
	}
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(dir, "kustomization.yaml")), &k); err != nil {
		t.Fatal(err)
	}
	for _, name := range k.Resources {
		if strings.Contains(name, "/") {
			t.Fatalf("%s/kustomization.yaml names %s, which is not a file beside it", dir, name)
		}
	}
	return k.Resources
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The overlay for the Prometheus Operator is base and two objects.
func TestMonitoringOverlay(t *testing.T) {
	base, err := kustomize.Build("base")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := kustomize.Build("overlays/monitoring")
	if err != nil {
		t.Fatal(err)
	}
	kinds := func(text []byte) map[string]int {
		of := map[string]int{}
		for line := range strings.Lines(string(text)) {
			if kind, ok := strings.CutPrefix(line, "kind: "); ok {
				of[strings.TrimSpace(kind)]++
			}
		}
		return of
	}
	want := kinds(base)
	want["PrometheusRule"], want["ServiceMonitor"] = 1, 1
	if diff := cmp.Diff(want, kinds(overlay)); diff != "" {
		t.Errorf("kinds (- want):\n%s", diff)
	}
}
