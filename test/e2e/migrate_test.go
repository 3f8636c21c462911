//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// recordings are the cases of test/gatekeeper/testdata/recorded/corpus.yaml that
// servers run: mutators of Gatekeeper's library and of its documentation, on the
// objects that come with them. A recording knows no defaults, so there are none
// here that depend on what is mutated, as imagePullPolicy does on a tag.
var recordings = []string{
	"all lib mutators + input-lib-users",
	"all lib mutators + input-lib-users-nomutation",
	"lib-allow-privilege-escalation-containers + input-lib-privilege-escalation",
	"lib-capabilities-modifyset + input-e2e-pod",
	"lib-users-run-as-non-root + input-lib-users-nomutation",
	"dns policy and config + input-e2e-pod",
	"istio sidecar and args + input-e2e-pod",
	"demo-assignimage-registry + input-e2e-pod",
	"doc-assign-env-create-only + input-e2e-pod",
	"doc-assign-image-pull-policy + input-e2e-pod",
	"doc-assign-sidecar + input-e2e-pod",
	"doc-assignmetadata-from-namespace + input-e2e-pod",
	"e2e-assignmetadata-labelselector + input-e2e-configmap",
}

// migrateCase is mutators and what Gatekeeper makes of an object with them.
type migrateCase struct {
	name     string
	mutators string // YAML
	object   *unstructured.Unstructured
	want     *unstructured.Unstructured
	// reinvocation is that of the one policy that all mutators are in; empty if
	// they have several.
	reinvocation string
	patches      []string // what policies are written with
	stored       []byte   // want, as a server stores it
	plain        []byte   // object, as a server stores it
}

// TestMigrate has migrate write policies, and servers run them: one that has the
// plugin, and one without it but with mapd, which has run the mutators as they are
// before. All of them store what Gatekeeper was recorded to make of the object.
func TestMigrate(t *testing.T) {
	t.Parallel()
	m := &migrator{native: cluster.Start(t, cluster.Options{Native: true})}
	overlay := output(t, exec.Command(cluster.Program(t, "kubectl"), "kustomize", manifests(t, "overlays", "legacy")))
	m.mapd = &gatekeeperInstall{cluster.Install(t, cluster.Start(t, cluster.Options{}),
		cluster.InstallOptions{Manifest: overlay, Flags: []string{"--legacy=on"}})}
	defineGatekeeper(t, m.native)
	defineGatekeeper(t, m.mapd.Cluster)

	all := append(recordedCases(t), ownCases(t)...)
	for _, c := range all {
		c.stored, c.plain = stored(t, m.native, c.want), stored(t, m.native, c.object)
	}
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) { m.run(t, c) })
	}
	t.Logf("%d cases", len(all))
}

type migrator struct {
	native *cluster.Cluster   // with the plugin
	mapd   *gatekeeperInstall // without
}

func (m *migrator) run(t *testing.T, c *migrateCase) {
	m.mapd.Apply(t, c.mutators)
	m.native.Apply(t, c.mutators)
	for _, s := range []*cluster.Cluster{m.mapd.Cluster, m.native} {
		defer func() { remove(t, s, "--ignore-not-found", "--filename="+write(t, c.mutators)) }()
	}
	await(t, "mutators under mapd", m.mapd.Cluster, c)

	var before []string // what has been tried
	for _, patch := range c.patches {
		native := m.migrate(t, m.native, c, "--patch="+patch)
		if native == "" {
			continue
		}
		text := joined(t, native)
		if slices.Contains(before, text) {
			continue
		}
		before = append(before, text)
		if _, err := m.native.Kubectl(t, nil, "apply", "--filename="+native); err != nil {
			t.Fatal(err)
		}
		await(t, "policies in the API server, --patch "+patch, m.native, c)
		remove(t, m.native, "--filename="+native)
		until(t, "policies are gone, --patch "+patch, m.native, c.object, c.plain)
	}

	own := m.migrate(t, m.mapd.Cluster, c, "--api-group=mapd.dev")
	remove(t, m.mapd.Cluster, "--filename="+write(t, c.mutators))
	m.mapd.says(t)
	m.mapd.entry(t)
	if _, err := m.mapd.Kubectl(t, nil, "apply", "--filename="+own); err != nil {
		t.Fatal(err)
	}
	await(t, "policies under mapd", m.mapd.Cluster, c)
	remove(t, m.mapd.Cluster, "--filename="+own)
	m.mapd.entry(t)
}

// migrate has policies written for what is in a cluster, tries them on its objects,
// and returns the directory; none if apply is asked for and cannot be had.
func (m *migrator) migrate(t *testing.T, c *cluster.Cluster, tc *migrateCase, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	code, _, stderr := migrate(t, c, c.Config, append(flags, "--from-cluster", "--verify", "--generated=0", "--output-dir", dir)...)
	if code == 1 && slices.Contains(flags, "--patch=apply") {
		// Not all can be said by a merge; and where it can, nulls and keys that repeat
		// make it differ. None of the objects has any.
		if strings.Contains(stderr, " refused ") {
			return ""
		}
		code = 0
	}
	if code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if tc.reinvocation == "" {
		return dir
	}
	if len(files) != 1 {
		t.Fatalf("%d policies, want one for all", len(files))
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if want := "\n  reinvocationPolicy: " + tc.reinvocation + "\n"; !strings.Contains(string(data), want) {
		t.Errorf("the policy does not say %q:\n%s", want, data)
	}
	return dir
}

// await waits until a dry run has the wanted result, and then stores the object.
func await(t *testing.T, what string, s *cluster.Cluster, c *migrateCase) {
	t.Helper()
	until(t, what, s, c.object, c.stored)
	if d := cmp.Diff(string(c.stored), string(stored(t, s, c.object))); d != "" {
		t.Errorf("%s (-Gatekeeper, as stored):\n%s", what, d)
	}
}

// until waits until a dry run of an object has the wanted result.
func until(t *testing.T, what string, s *cluster.Cluster, object *unstructured.Unstructured, want []byte) {
	t.Helper()
	cluster.Eventually(t, cluster.Patience, what, func(ctx context.Context) error {
		got, err := create(ctx, s, object, metav1.DryRunAll)
		if err == nil && !bytes.Equal(want, own(t, got)) {
			err = fmt.Errorf("-want, as stored, +got:\n%s", cmp.Diff(string(want), string(own(t, got))))
		}
		return err
	})
}

// joined is what the files of a directory hold.
func joined(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(data)
	}
	return all.String()
}

// stored is what a server stores of an object, without what is the server's own.
func stored(t *testing.T, s *cluster.Cluster, obj *unstructured.Unstructured) []byte {
	t.Helper()
	if _, err := create(t.Context(), s, obj); err != nil {
		t.Fatal(err)
	}
	client := s.Dynamic.Resource(resourceOf(obj)).Namespace("default")
	got, err := client.Get(t.Context(), obj.GetName(), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Delete(t.Context(), obj.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	return own(t, got)
}

func create(ctx context.Context, s *cluster.Cluster, obj *unstructured.Unstructured, dryRun ...string) (*unstructured.Unstructured, error) {
	return s.Dynamic.Resource(resourceOf(obj)).Namespace("default").Create(ctx, obj.DeepCopy(), metav1.CreateOptions{DryRun: dryRun})
}

// resourceOf is the resource of a Pod or a ConfigMap.
func resourceOf(obj *unstructured.Unstructured) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: strings.ToLower(obj.GetKind()) + "s"}
}

// own is an object as JSON, without what differs with every creation.
func own(t *testing.T, obj *unstructured.Unstructured) []byte {
	t.Helper()
	obj = obj.DeepCopy()
	for _, field := range []string{"uid", "creationTimestamp", "resourceVersion", "managedFields"} {
		unstructured.RemoveNestedField(obj.Object, "metadata", field)
	}
	data, err := json.MarshalIndent(obj.Object, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func remove(t *testing.T, s *cluster.Cluster, args ...string) {
	t.Helper()
	if _, err := s.Kubectl(t, nil, append([]string{"delete"}, args...)...); err != nil {
		t.Error(err)
	}
}

// write writes a file.
func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

var documentStart = regexp.MustCompile(`(?m)^---\n`)

func decodeDocument(t *testing.T, doc string, into any) {
	t.Helper()
	text, err := yaml.YAMLToJSONStrict([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, into); err != nil {
		t.Fatal(err)
	}
}

// ownCases are about order and repetition.
func ownCases(t *testing.T) []*migrateCase {
	t.Helper()
	data, err := os.ReadFile("testdata/migrate-cases.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all []*migrateCase
	for _, doc := range documentStart.Split(string(data), -1)[1:] {
		var d struct {
			Name         string           `json:"name"`
			Reinvocation string           `json:"reinvocation"`
			Mutators     []map[string]any `json:"mutators"`
			Object       map[string]any   `json:"object"`
			Want         map[string]any   `json:"want"`
		}
		decodeDocument(t, doc, &d)
		var mutators []string
		for _, m := range d.Mutators {
			text, err := yaml.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			mutators = append(mutators, string(text))
		}
		all = append(all, &migrateCase{
			name: d.Name, mutators: strings.Join(mutators, "---\n"), reinvocation: d.Reinvocation, patches: []string{"auto", "json", "apply"},
			object: &unstructured.Unstructured{Object: d.Object}, want: &unstructured.Unstructured{Object: d.Want},
		})
	}
	return all
}

// recordedCases are those of recordings.
func recordedCases(t *testing.T) []*migrateCase {
	t.Helper()
	dir := filepath.Join(cluster.Root(t), "test/gatekeeper/testdata")
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	type recording struct {
		Name         string   `json:"name"`
		MutatorFiles []string `json:"mutatorFiles"`
		ObjectFile   string   `json:"objectFile"`
		Want         struct {
			Object map[string]any `json:"object"`
		} `json:"want"`
	}
	found := map[string]recording{}
	for _, doc := range documentStart.Split(read("recorded/corpus.yaml"), -1) {
		var r recording
		decodeDocument(t, doc, &r)
		found[r.Name] = r
	}
	var all []*migrateCase
	for _, name := range recordings {
		r, ok := found[name]
		if !ok {
			t.Fatalf("there is no recording %q", name)
		}
		c := &migrateCase{name: name, patches: []string{"auto"}, object: oneObject(t, read("corpus/"+r.ObjectFile+".yaml"))}
		c.want = &unstructured.Unstructured{Object: r.Want.Object}
		if r.Want.Object == nil {
			c.want = c.object // nothing has changed
		}
		for _, file := range r.MutatorFiles {
			// No server takes a name with a capital.
			c.mutators += "---\n" + strings.Replace(read("corpus/"+file+".yaml"), "name: k8spspfsGroup", "name: k8spspfsgroup", 1)
		}
		all = append(all, c)
	}
	return all
}
