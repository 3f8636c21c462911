//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// elsewhere says of commands in the documents why they are not run here: the test
// that does, or what it would take.
var elsewhere = map[string]string{
	"make image IMAGE=registry.example.com/mapd:1 ARCH=amd64": "needs docker; make kind does it",
	"mapd install":                                                                             "TestInstallation",
	"mapd doctor":                                                                              "TestInstallation",
	"mapd uninstall":                                                                           "TestLockOut",
	"kubectl apply -k manifests/overlays/ha":                                                   "TestManifestsOnAServer",
	"kubectl apply -k manifests/overlays/legacy":                                               "TestGatekeeperDocument",
	"kubectl apply -k manifests/overlays/native":                                               "TestNative",
	"kubectl apply -k manifests/overlays/expansion":                                            "TestExpansion applies its rights; TestManifestsAgree renders it",
	"kubectl apply -k manifests/overlays/audit":                                                "TestManifestsAgree renders it",
	"kubectl apply -k manifests/overlays/monitoring":                                           "needs the Prometheus Operator; TestMonitoringOverlay renders it",
	"kubectl apply -k manifests/overlays/cert-manager":                                         "needs cert-manager; TestManifestsAgree renders it",
	"helm install mapd manifests/chart --namespace mapd-system --create-namespace":             "TestChartOnAServer",
	"kubectl -n mapd-system rollout status deployment/mapd":                                    "needs a deployment controller",
	"kubectl -n mapd-system logs -l app.kubernetes.io/name=mapd":                               "needs a kubelet",
	"kubectl -n mapd-system logs -l app.kubernetes.io/name=mapd --prefix | grep 'level=ERROR'": "needs a kubelet",
	"kubectl -n mapd-system port-forward deployment/mapd 6060":                                 "needs a kubelet",
	"go tool pprof http://127.0.0.1:6060/debug/pprof/heap":                                     "needs the port that kubectl forwards",
	"kubectl get --raw /api/v1/namespaces/mapd-system/services/https:mapd:https/proxy/metrics": "needs Pods behind the Service; TestLoad reads the metrics",
	"kubectl apply -f manifests/install.yaml":                                                  "TestManifestsOnAServer",
	"kubectl delete mutatingwebhookconfiguration 000.mapd.dev":                                 "TestLockOut",
	"kubectl -n mapd-system scale deployment mapd --replicas=0":                                "TestLockOut",

	`kubectl -n mapd-system get configmap mapd-gatekeeper -o go-template='{{.data.summary}}{{"\n"}}{{.data.mutators}}'`: "TestNative",
	"kubectl get mutatingadmissionpolicies.admissionregistration.k8s.io,map -l mapd.dev/live":                           "TestNative",
}

// fromCheckout are those of docs/move/gatekeeper.md that get mapd; the test has it.
var fromCheckout = map[string]string{
	"git clone https://github.com/mapd-project/mapd":             "this is it",
	"make -C mapd build":                                         "TestMain",
	`export PATH="$PWD/mapd/bin:$PATH"`:                          "done for all commands",
	"kubectl -n mapd-system logs -l app.kubernetes.io/name=mapd": "needs a kubelet",
}

var command = regexp.MustCompile(`^    (?:kubectl|mapd|helm|sed|go|git|make|export|cp|rm) `)

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

// reader does what documents say.
type reader struct {
	dir       string
	env       []string
	elsewhere map[string]string
	codes     map[string]int // exit codes that are not 0, by command
	unused    map[string]bool
	ran       int
}

// newReader begins in a directory, with mapd and kubectl at hand.
func newReader(t *testing.T, m *cluster.Mapd, dir string, elsewhere map[string]string) *reader {
	t.Helper()
	bin := t.TempDir()
	for name, path := range map[string]string{"mapd": cluster.Binary(t), "kubectl": cluster.Program(t, "kubectl")} {
		if err := os.Symlink(path, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	r := &reader{dir: dir, elsewhere: elsewhere, codes: map[string]int{}, unused: map[string]bool{}}
	r.env = append(os.Environ(), "KUBECONFIG="+m.Kubeconfig(t, m.Config, ""), "HOME="+t.TempDir(), "PATH="+bin+":"+os.Getenv("PATH"))
	for c := range elsewhere {
		r.unused[c] = true
	}
	return r
}

// follow runs the commands of a document in their order. Before each, first may do
// what the harness needs, and then may wait for what it has begun.
func (r *reader) follow(t *testing.T, file string, first, then func(command string)) {
	t.Helper()
	for _, c := range commands(t, file) {
		bare, _, _ := strings.Cut(c, "  #")
		bare = strings.TrimSpace(bare)
		why := r.elsewhere[bare]
		for _, key := range []string{c, bare} {
			if w := r.elsewhere[key]; w != "" {
				why = w
			}
			delete(r.unused, key)
		}
		if why != "" {
			t.Logf("%s: not run: %s: %s", file, bare, why)
			continue
		}
		if first != nil {
			first(bare)
		}
		out, err := r.run(t.Context(), c)
		var exit *exec.ExitError
		if want := r.codes[bare]; err != nil && !(errors.As(err, &exit) && exit.ExitCode() == want) || err == nil && want != 0 {
			t.Errorf("%s: %s: %v, want exit code %d\n%s", file, c, err, want, out)
		}
		r.ran++
		if then != nil {
			then(bare)
		}
	}
}

func (r *reader) run(ctx context.Context, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-ec", command)
	cmd.Dir, cmd.Env = r.dir, r.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// done checks that the documents were read as they are written.
func (r *reader) done(t *testing.T, atLeast int) {
	t.Helper()
	if r.ran < atLeast {
		t.Errorf("%d commands were run; are the blocks found?", r.ran)
	}
	for c := range r.unused {
		t.Errorf("no document has the command %q any more", c)
	}
}

// TestDocuments runs the commands of the pages about operating a cluster, in their order,
// on a cluster with mapd in it.
func TestDocuments(t *testing.T) {
	t.Parallel()
	m := cluster.Installed(t, cluster.InstallOptions{})
	m.NeedProcesses(t)
	r := newReader(t, m, cluster.Root(t), elsewhere)
	r.codes["mapd debug bundle --output-file /tmp/mapd-bundle.tar.gz"] = 5 // there is no kubelet, so no Pod has a log
	for _, page := range []string{"install", "run", "breakers", "observe", "secure", "emergencies"} {
		r.follow(t, "docs/operate/"+page+".md", nil, nil)
	}
	r.done(t, 8)
}

// TestGatekeeperDocument runs the commands of docs/move/gatekeeper.md as somebody would
// who begins in an empty directory, with a cluster that has Gatekeeper's kinds and
// runs policies.
func TestGatekeeperDocument(t *testing.T) {
	t.Parallel()
	m := cluster.Install(t, cluster.Start(t, cluster.Options{Native: true}), cluster.InstallOptions{Replicas: -1})
	g := &gatekeeperInstall{m}
	g.define(t)
	dir := t.TempDir()
	if err := os.Symlink(cluster.Root(t), filepath.Join(dir, "mapd")); err != nil {
		t.Fatal(err)
	}
	r := newReader(t, m, dir, fromCheckout)
	r.codes["mapd migrate gatekeeper --from-cluster --verify --report report.html --output-dir from-cluster"] = 1

	var old *cluster.Replica
	r.follow(t, "docs/move/gatekeeper.md", func(command string) {
		switch {
		case command == "mapd doctor":
			// The reader has taken a minute to come here: the entries are there.
			cluster.Eventually(t, cluster.Patience, command, func(ctx context.Context) error {
				out, err := r.run(ctx, command)
				if err != nil {
					err = fmt.Errorf("%w\n%s", err, out)
				}
				return err
			})
		case strings.Contains(command, "overlays/legacy"):
			g.delete(t, "--namespace="+cluster.Namespace, "service/"+cluster.Name) // the harness has changed it
		}
	}, func(command string) {
		switch {
		case strings.Contains(command, "overlays/legacy"):
			m.Expose(t)
			// The Deployment's Pods, with its arguments.
			next := m.AddReplica(t, legacyFlag(t, m))
			m.WaitReady(t)
			if old != nil {
				m.Remove(t, old)
			}
			old = next
			g.says(t, "Assign/always-pull running", "AssignMetadata/owner running", "ModifySet/no-net-admin running")
		case strings.Contains(command, "delete assign"):
			g.says(t, "ModifySet/no-net-admin running")
			g.entry(t, "pods", "pods/ephemeralcontainers")
		case strings.Contains(command, "objects/web.yaml"):
			// Now, or as soon as the servers have heard of what was applied.
			cluster.Eventually(t, cluster.Patience, command, func(ctx context.Context) error {
				out, err := r.run(ctx, command)
				if err == nil && (strings.Count(out, "imagePullPolicy: Always") != 2 || !strings.Contains(out, "owner: payments") || strings.Contains(out, "- NET_ADMIN")) {
					err = errors.New("this is not what is wanted")
				}
				if err != nil {
					return fmt.Errorf("%w\n%s", err, out)
				}
				return nil
			})
		}
	})
	r.done(t, 12)
	g.says(t, "Assign/always-pull running", "AssignMetadata/owner running", "ModifySet/no-net-admin running")
}

// legacyFlag is the argument of mapd's Deployment that is about mutators.
func legacyFlag(t *testing.T, m *cluster.Mapd) string {
	t.Helper()
	d, err := m.Kubernetes.AppsV1().Deployments(cluster.Namespace).Get(t.Context(), cluster.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	args := d.Spec.Template.Spec.Containers[0].Args
	i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "--legacy=") })
	if i < 0 {
		t.Fatalf("the Deployment has the arguments %q", args)
	}
	return args[i]
}

// TestExamples gives the objects of examples/ to API servers that have all their policies:
// one that runs them itself, and one behind which mapd does. What would be stored has what
// want.yaml has.
func TestExamples(t *testing.T) {
	t.Parallel()
	together(t, []part{
		{"natively", func(t *testing.T) {
			c := cluster.Start(t, cluster.Options{Native: true, Flags: []string{
				"--allow-privileged", "--disable-admission-plugins=", // ServiceAccount is on, as everywhere
			}})
			readExamples(t, api.NativeGroup).run(t, c)
		}},
		{"through mapd", func(t *testing.T) {
			m := cluster.Installed(t, cluster.InstallOptions{Cluster: cluster.Options{Flags: []string{
				"--allow-privileged", "--disable-admission-plugins=MutatingAdmissionPolicy",
			}}})
			e := readExamples(t, api.OwnGroup)
			m.NeedFree(t, e.crds+e.cluster)
			m.GrantParams(t, "mutations.example.com", "*")
			e.run(t, m.Cluster)
		}},
	})
}

// exampleFiles is what the directories of examples/ have, as manifests.
type exampleFiles struct {
	crds, cluster, namespaced string
	namespaces                []string
	dirs                      []string
}

// readExamples reads the examples, with policies for a group.
func readExamples(t *testing.T, group string) *exampleFiles {
	t.Helper()
	policies, err := filepath.Glob(filepath.Join(cluster.Root(t), "examples", "*", "policy.yaml"))
	if err != nil || len(policies) < 50 {
		t.Fatalf("examples: %v, %v", policies, err)
	}
	e := &exampleFiles{}
	// The policies' files have Namespaces with labels; the others are made up.
	namespaces := map[string]bool{"default": true}
	add := func(o map[string]any) {
		to := &e.namespaced
		if meta(o)["namespace"] == nil {
			to = &e.cluster
			labels, _ := meta(o)["labels"].(map[string]any)
			if labels == nil {
				labels = map[string]any{}
				meta(o)["labels"] = labels
			}
			labels[cluster.Label] = cluster.LabelValue
		}
		switch o["kind"] {
		case "CustomResourceDefinition":
			to = &e.crds
		case "Namespace":
			namespaces[meta(o)["name"].(string)] = true
		}
		text, err := yaml.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		*to += "---\n" + strings.Replace(string(text), "apiVersion: "+api.NativeGroup+"/", "apiVersion: "+group+"/", 1)
	}
	for _, file := range policies {
		e.dirs = append(e.dirs, filepath.Dir(file))
		for _, o := range documents(t, file) {
			add(o)
		}
	}
	for _, dir := range e.dirs {
		for _, o := range slices.Concat(documents(t, filepath.Join(dir, "policy.yaml")), documents(t, filepath.Join(dir, "objects.yaml"))) {
			if ns, _ := meta(o)["namespace"].(string); ns != "" && !namespaces[ns] {
				add(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": ns}})
			}
		}
	}
	e.namespaces = slices.Sorted(maps.Keys(namespaces))
	return e
}

// run applies the policies and creates the objects, dry, until all are as they should be.
func (e *exampleFiles) run(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	c.Apply(t, e.crds)
	// A kind that is defined here is served a moment later.
	cluster.Eventually(t, cluster.Patience, "everything is applied", func(context.Context) error {
		_, err := c.Kubectl(t, []byte(e.cluster+e.namespaced), "apply", "-f", "-")
		return err
	})
	c.DefaultServiceAccounts(t, e.namespaces...)
	// Servers and the webhook's rules take a moment to see the policies. Whoever is right
	// once is not asked again.
	left := e.dirs
	cluster.Eventually(t, cluster.Patience, "the objects are as they should be", func(context.Context) error {
		args := []string{"create", "--dry-run=server", "--output=json"}
		for _, dir := range left {
			args = append(args, "--filename="+filepath.Join(dir, "objects.yaml"))
		}
		out, refused := c.Kubectl(t, nil, args...) // what is not refused is printed all the same
		stored := map[string]map[string]any{}
		for d := json.NewDecoder(strings.NewReader(out)); ; {
			var o map[string]any
			if err := d.Decode(&o); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return errors.Join(err, refused)
			}
			stored[key(o)] = o
		}
		var wrong []string
		left = slices.DeleteFunc(slices.Clone(left), func(dir string) bool {
			var differ []string
			for _, o := range documents(t, filepath.Join(dir, "want.yaml")) {
				differ = append(differ, lacks(plain(t, o), stored[key(o)], filepath.Base(dir)+": "+key(o))...)
			}
			wrong = append(wrong, differ...)
			return len(differ) == 0
		})
		if len(left) > 0 {
			return errors.Join(errors.New(strings.Join(wrong, "\n")), refused)
		}
		return nil
	})
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

// lacks says what of want is not in got, which may have more fields, but no more
// items than want and those that admission plugins add. A server drops fields that
// are empty.
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
		g = slices.DeleteFunc(slices.Clone(g), func(item any) bool {
			return admitted(item) && !slices.ContainsFunc(w, func(x any) bool { return len(lacks(x, item, path)) == 0 })
		})
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

// admitted reports whether an item of a Pod's lists is one that the plugins
// ServiceAccount and DefaultTolerationSeconds add: the volume of a token, its mount,
// a toleration of nodes that are away.
func admitted(item any) bool {
	m, _ := item.(map[string]any)
	name, _ := m["name"].(string)
	taint, _ := m["key"].(string)
	return strings.HasPrefix(name, "kube-api-access-") || strings.HasPrefix(taint, "node.kubernetes.io/") && m["effect"] == "NoExecute"
}
