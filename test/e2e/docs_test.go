//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// elsewhere says of commands in the documents why TestDocuments does not run
// them: the test that does, or what it would take.
var elsewhere = map[string]string{
	"mapd install":                           "TestInstallation",
	"mapd doctor":                            "TestInstallation",
	"mapd uninstall":                         "TestLockOut",
	"kubectl apply -k manifests/overlays/ha": "TestManifestsOnAServer",
	"kubectl apply -k manifests/overlays/cert-manager":                                         "needs cert-manager; TestManifestsAgree renders it",
	"helm install mapd manifests/chart --namespace mapd-system --create-namespace":             "TestChartOnAServer",
	"kubectl -n mapd-system rollout status deployment/mapd":                                    "needs a deployment controller",
	"kubectl -n mapd-system logs -l app.kubernetes.io/name=mapd":                               "needs a kubelet",
	"kubectl -n mapd-system port-forward deployment/mapd 6060":                                 "needs a kubelet",
	"go tool pprof http://127.0.0.1:6060/debug/pprof/heap":                                     "needs the port that kubectl forwards",
	"kubectl get --raw /api/v1/namespaces/mapd-system/services/https:mapd:https/proxy/metrics": "needs Pods behind the Service; TestLoad reads the metrics",
	"kubectl apply -f manifests/install.yaml":                                                  "TestManifestsOnAServer",
	"kubectl delete mutatingwebhookconfiguration 000.mapd.dev":                                 "TestLockOut",
	"kubectl -n mapd-system scale deployment mapd --replicas=0":                                "TestLockOut",
}

var command = regexp.MustCompile(`^    (?:kubectl|mapd|helm|sed|go) `)

// commands are the commands of a document: blocks that are indented by four
// spaces and begin with a program, here documents included.
func commands(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(cluster.Root(t), file))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	lines := strings.Split(string(data), "\n")
	for i := 0; i < len(lines); i++ {
		if !command.MatchString(lines[i]) {
			continue
		}
		text := strings.TrimPrefix(lines[i], "    ")
		if strings.HasSuffix(text, "<<EOF") {
			for text += "\n"; lines[i] != "    EOF"; {
				i++
				text += strings.TrimPrefix(lines[i], "    ") + "\n"
			}
		}
		all = append(all, text)
	}
	return all
}

// TestDocuments runs the commands of docs/install.md and docs/operate.md, in their
// order, on a cluster with mapd in it.
func TestDocuments(t *testing.T) {
	t.Parallel()
	m := cluster.Installed(t, cluster.InstallOptions{})
	m.NeedProcesses(t)
	bin := t.TempDir()
	for name, path := range map[string]string{"mapd": cluster.Binary(t), "kubectl": filepath.Join(cluster.Servers(t), "kubectl")} {
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	env := append(os.Environ(), "KUBECONFIG="+m.Kubeconfig(t, m.Config, ""), "HOME="+t.TempDir(), "PATH="+bin+":"+os.Getenv("PATH"))
	unused := map[string]bool{}
	for c := range elsewhere {
		unused[c] = true
	}
	ran := 0
	for _, file := range []string{"docs/install.md", "docs/operate.md"} {
		for _, c := range commands(t, file) {
			bare, _, _ := strings.Cut(c, "  #")
			bare = strings.TrimSpace(bare)
			why := elsewhere[bare]
			for _, key := range []string{c, bare} {
				if w := elsewhere[key]; w != "" {
					why = w
				}
				delete(unused, key)
			}
			if why != "" {
				t.Logf("%s: not run: %s: %s", file, bare, why)
				continue
			}
			cmd := exec.Command("sh", "-ec", c)
			cmd.Dir, cmd.Env = cluster.Root(t), env
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %s: %v\n%s", file, c, err, out)
			}
			ran++
		}
	}
	if ran < 8 {
		t.Errorf("%d commands were run; are the blocks found?", ran)
	}
	for c := range unused {
		t.Errorf("no document has the command %q any more", c)
	}
}

// TestExamples gives the objects of examples/ to an API server behind which mapd
// has their policies: what is stored has what want.yaml has.
func TestExamples(t *testing.T) {
	t.Parallel()
	m := cluster.Installed(t, cluster.InstallOptions{Cluster: cluster.Options{Flags: []string{
		"--allow-privileged", "--disable-admission-plugins=DefaultTolerationSeconds", // as the examples have it
	}}})
	m.GrantParams(t, "mutations.example.com", "*")
	examples := filepath.Join(cluster.Root(t), "examples")
	policies, err := filepath.Glob(filepath.Join(examples, "*", "policy.yaml"))
	if err != nil || len(policies) < 10 {
		t.Fatalf("examples: %v, %v", policies, err)
	}
	var all strings.Builder
	for _, file := range policies {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "---\n%s\n", strings.ReplaceAll(string(data), "apiVersion: admissionregistration.k8s.io/", "apiVersion: admissionregistration.mapd.dev/"))
	}
	namespaces := map[string]bool{}
	for _, file := range policies {
		for _, name := range []string{"policy.yaml", "objects.yaml"} {
			for _, o := range documents(t, filepath.Join(filepath.Dir(file), name)) {
				if ns, _ := meta(o)["namespace"].(string); ns != "" {
					namespaces[ns] = true
				}
			}
		}
	}
	// The policies' files have Namespaces with labels; the others are made up.
	cluster.Eventually(t, time.Minute, "everything is applied", func(context.Context) error {
		for ns := range namespaces {
			if _, err := m.Kubectl(t, nil, "get", "namespace", ns); err != nil {
				if _, err := m.Kubectl(t, nil, "create", "namespace", ns); err != nil {
					return err
				}
			}
		}
		_, err := m.Kubectl(t, []byte(all.String()), "apply", "-f", "-")
		return err
	})
	if _, err := m.Kubectl(t, nil, "wait", "--for=condition=Ready", "--timeout=60s", "map,mapb", "--all"); err != nil {
		t.Fatal(err)
	}
	for _, file := range policies {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			want := map[string]map[string]any{}
			for _, o := range documents(t, filepath.Join(dir, "want.yaml")) {
				want[key(o)] = o
			}
			// The webhook's rules may be on their way still.
			cluster.Eventually(t, 30*time.Second, "the objects are as they should be", func(context.Context) error {
				out, err := m.Kubectl(t, nil, "create", "--dry-run=server", "-o", "json", "-f", filepath.Join(dir, "objects.yaml"))
				if err != nil {
					return err
				}
				seen := 0
				for d := json.NewDecoder(strings.NewReader(out)); ; seen++ {
					var got map[string]any
					if err := d.Decode(&got); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						return err
					}
					if missing := lacks(plain(t, want[key(got)]), got, key(got)); len(missing) > 0 {
						return errors.New(strings.Join(missing, "\n"))
					}
				}
				if seen != len(want) {
					return fmt.Errorf("%d objects, want %d", seen, len(want))
				}
				return nil
			})
		})
	}
}

func documents(t *testing.T, file string) []map[string]any {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]any
	for _, text := range strings.Split("\n"+string(data), "\n---") {
		var o map[string]any
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(o) > 0 {
			all = append(all, o)
		}
	}
	return all
}

func meta(o map[string]any) map[string]any {
	m, _ := o["metadata"].(map[string]any)
	return m
}

func key(o map[string]any) string {
	return fmt.Sprintf("%v %v/%v", o["kind"], meta(o)["namespace"], meta(o)["name"])
}

// plain is o with the types that encoding/json gives.
func plain(t *testing.T, o map[string]any) map[string]any {
	t.Helper()
	data, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// lacks says what of want is not in got, which may have more fields, but not more
// items. A server drops fields that are empty.
func lacks(want, got any, path string) []string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok && len(w) > 0 {
			return []string{fmt.Sprintf("%s: %v, want %v", path, got, want)}
		}
		var all []string
		for k, v := range w {
			all = append(all, lacks(v, g[k], path+"/"+k)...)
		}
		slices.Sort(all)
		return all
	case []any:
		g, _ := got.([]any)
		if len(g) != len(w) {
			return []string{fmt.Sprintf("%s: %v, want %v", path, got, want)}
		}
		var all []string
		for i := range w {
			all = append(all, lacks(w[i], g[i], fmt.Sprintf("%s/%d", path, i))...)
		}
		return all
	case nil:
		return nil
	}
	if want != got && want != "" {
		return []string{fmt.Sprintf("%s: %v, want %v", path, got, want)}
	}
	return nil
}
