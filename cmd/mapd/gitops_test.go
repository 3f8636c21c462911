package main

// The recipes of docs/tour/gitops: the commands of their files are run as they stand there.
// Argo CD and Flux themselves do not run here.

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/test/hammer"
)

const gitops = "../../docs/tour/gitops"

// command runs a program in a directory, in which mapd is that of this test.
func command(t *testing.T, dir string, stdin []byte, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(stdin)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return string(out)
}

// renderedApp is what the recipes make of the application: what eval makes of it.
func renderedApp(t *testing.T) string {
	t.Helper()
	out := printed(t, "eval", "-q", "-p", gitops+"/policies", "-k", gitops+"/app", "-n", "shop")
	for _, text := range []string{"team: payments", "imagePullPolicy: IfNotPresent"} {
		if !strings.Contains(out, text) {
			t.Fatalf("no %q in\n%s", text, out)
		}
	}
	return out
}

// TestArgoPlugin runs the commands of the plugin as Argo CD's sidecar does: in the directory
// of the application, with its variables. Only /policies is another directory here.
func TestArgoPlugin(t *testing.T) {
	hammer.Alone(t)
	var plugin struct {
		APIVersion, Kind string
		Metadata         struct{ Name string }
		Spec             struct {
			Version  string
			Discover struct{ Find struct{ Command []string } }
			Generate struct{ Command []string }
		}
	}
	if err := yaml.UnmarshalStrict([]byte(readFile(t, gitops, "argocd", "plugin.yaml")), &plugin); err != nil {
		t.Fatal(err)
	}
	policies, err := filepath.Abs(gitops + "/policies")
	if err != nil {
		t.Fatal(err)
	}
	run := func(dir string, args []string) string {
		var here []string
		for _, a := range args {
			here = append(here, strings.ReplaceAll(a, "/policies", policies))
		}
		return command(t, dir, nil, []string{"ARGOCD_APP_NAME=web", "ARGOCD_APP_NAMESPACE=shop"}, here...)
	}
	if out := run(gitops+"/app", plugin.Spec.Discover.Find.Command); out == "" {
		t.Error("the application is not found")
	}
	if out := run(gitops+"/chart", plugin.Spec.Discover.Find.Command); out != "" {
		t.Errorf("a chart is taken for a kustomization: %q", out)
	}
	want := renderedApp(t)
	for range 2 {
		if d := cmp.Diff(want, run(gitops+"/app", plugin.Spec.Generate.Command)); d != "" {
			t.Errorf("-eval +generate\n%s", d)
		}
	}
	// The other files name what the plugin has.
	patch := readFile(t, gitops, "argocd", "repo-server.yaml")
	for _, text := range []string{"mountPath: /policies", "argocd-cmp-server"} {
		if !strings.Contains(patch, text) {
			t.Errorf("repo-server.yaml has no %q", text)
		}
	}
	if app := readFile(t, gitops, "argocd", "application.yaml"); !strings.Contains(app, "name: "+plugin.Metadata.Name+"-"+plugin.Spec.Version+"\n") {
		t.Error("application.yaml names another plugin")
	}
	if file := readFile(t, gitops, "argocd", "Dockerfile"); !strings.Contains(file, "COPY plugin.yaml /home/argocd/cmp-server/config/plugin.yaml\n") || plugin.Kind != "ConfigManagementPlugin" || plugin.APIVersion != "argoproj.io/v1alpha1" {
		t.Error("the sidecar does not find the plugin")
	}
}

// TestKustomizeTour builds the kustomization with the function in it, which may read the
// directories beside it since -p names them.
func TestKustomizeTour(t *testing.T) {
	hammer.Alone(t)
	dir, err := filepath.Abs(gitops + "/kustomize")
	if err != nil {
		t.Fatal(err)
	}
	out, err := kustomizeBuild(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"team: payments", "imagePullPolicy: IfNotPresent", "namespace: shop"} {
		if !strings.Contains(out, text) {
			t.Errorf("no %q in\n%s", text, out)
		}
	}
	if strings.Contains(out, "config.kubernetes.io") {
		t.Errorf("annotations of kustomize are left in\n%s", out)
	}
}

// TestFluxRecipe runs the scripts of the recipe: what is pushed is what eval prints, and the
// patches of a HelmRelease, applied by kustomize, make the same of a chart.
func TestFluxRecipe(t *testing.T) {
	hammer.Alone(t)
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no sh")
	}
	dir := t.TempDir()
	command(t, gitops, nil, nil, "sh", "flux/render.sh", "app", "policies", "shop", dir)
	want := renderedApp(t)
	if d := cmp.Diff(want, readFile(t, dir, "rendered.yaml")); d != "" {
		t.Errorf("-eval +rendered.yaml\n%s", d)
	}

	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("there is no jq, which patches.sh needs")
	}
	chart, err := kustomizeBuild(t, gitops+"/app")
	if err != nil {
		t.Fatal(err)
	}
	out := command(t, gitops, []byte(chart), nil, "sh", "flux/patches.sh", "policies", "shop")
	var spec struct {
		PostRenderers []struct{ Kustomize struct{ Patches []any } }
	}
	if err := json.Unmarshal([]byte(out), &spec); err != nil || len(spec.PostRenderers) != 1 || len(spec.PostRenderers[0].Kustomize.Patches) != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	kustomization, err := yaml.Marshal(map[string]any{"resources": []string{"chart.yaml"}, "patches": spec.PostRenderers[0].Kustomize.Patches})
	if err != nil {
		t.Fatal(err)
	}
	release := t.TempDir()
	for name, text := range map[string]string{"chart.yaml": chart, "kustomization.yaml": string(kustomization)} {
		if err := os.WriteFile(filepath.Join(release, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	patched, err := kustomizeBuild(t, release)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(parseStream(t, want), parseStream(t, patched)); d != "" {
		t.Errorf("-eval +patches of the HelmRelease\n%s", d)
	}
}
