//go:build e2e

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// gitops is a file below docs/tour/gitops.
func gitops(t *testing.T, elem ...string) string {
	t.Helper()
	return filepath.Join(append([]string{cluster.Root(t), "docs", "tour", "gitops"}, elem...)...)
}

// TestHelmPostRenderer renders a chart with mapd as post-renderer, by Helm itself: what comes
// out is what mapd makes of what Helm renders without it, twice the same, and what mapd
// refuses ends Helm.
func TestHelmPostRenderer(t *testing.T) {
	cluster.NotGiven(t, "it asks no cluster")
	mapd := cluster.Binary(t)
	template := []string{"template", "web", gitops(t, "chart"), "--namespace=shop"}
	with := func(args ...string) []string {
		out := append(template[:len(template):len(template)], "--post-renderer="+mapd, "--post-renderer-args=post-render")
		for _, a := range args {
			out = append(out, "--post-renderer-args="+a)
		}
		return out
	}
	policies, shop := "--policies="+gitops(t, "policies"), "--namespace=shop"
	got := Helm(t, "", with(policies, shop)...)
	if again := Helm(t, "", with(policies, shop)...); !bytes.Equal(got, again) {
		t.Errorf("another result\n%s\n%s", got, again)
	}
	cmd := exec.CommandContext(t.Context(), mapd, "eval", "-q", policies, shop, "-f", "-")
	cmd.Stdin = bytes.NewReader(Helm(t, "", template...))
	want, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(got)) != strings.TrimSpace(string(want)) {
		t.Errorf("Helm prints\n%s\nand eval\n%s", got, want)
	}
	for _, text := range []string{"team: payments", "imagePullPolicy: IfNotPresent", "# Source: web/templates/web.yaml"} {
		if !strings.Contains(string(got), text) {
			t.Errorf("no %q in\n%s", text, got)
		}
	}
	path, err := helm()
	if err != nil {
		t.Fatal(err)
	}
	// Without the Namespace, whose label is copied.
	out, err := exec.CommandContext(t.Context(), path, with("--policies="+gitops(t, "policies", "defaults.yaml"), shop)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "no such key: team") {
		t.Errorf("%v\n%s", err, out)
	}
}

// The plugin of Argo CD for charts: its commands, in a directory with one and in one without.
func TestArgoPluginForHelm(t *testing.T) {
	cluster.NotGiven(t, "it asks no cluster")
	path, err := helm()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(gitops(t, "argocd", "plugin-helm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var plugin struct {
		Spec struct {
			Discover struct{ Find struct{ Command []string } }
			Generate struct{ Command []string }
		}
	}
	if err := yaml.Unmarshal(text, &plugin); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, program := range map[string]string{"helm": path, "mapd": cluster.Binary(t)} {
		if err := os.Symlink(program, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(in string, command []string) string {
		args := make([]string, len(command))
		for i, a := range command {
			// At once: what one puts in may have the other's text, as a clone below /tmp has.
			args[i] = strings.NewReplacer("/policies", gitops(t, "policies"), "/tmp/", dir+"/").Replace(a)
		}
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = in
		return string(output(t, cmd, "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "ARGOCD_APP_NAME=web", "ARGOCD_APP_NAMESPACE=shop"))
	}
	if found := run(gitops(t, "app"), plugin.Spec.Discover.Find.Command); found != "" {
		t.Errorf("a kustomization is taken for a chart: %q", found)
	}
	if found := run(gitops(t, "chart"), plugin.Spec.Discover.Find.Command); found == "" {
		t.Error("the chart is not found")
	}
	if got := run(gitops(t, "chart"), plugin.Spec.Generate.Command); !strings.Contains(got, "team: payments") || !strings.Contains(got, "kind: Service") {
		t.Errorf("it prints\n%s", got)
	}
}
