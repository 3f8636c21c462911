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
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/test/e2e/cluster"
)

// TestStatic has an API server load what mapd export --static writes for policies with
// parameters that are hard to write down, and holds what it stores to what mapd eval makes of
// the same objects with the policies as they were.
func TestStatic(t *testing.T) {
	t.Parallel()
	cluster.NotGiven(t, "it needs a server with files of its own")
	dir := t.TempDir()
	manifests := filepath.Join(dir, "manifests")
	policies := filepath.Join("testdata", "static", "policies.yaml")
	export(t, policies, manifests)
	config := filepath.Join(dir, "admission.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n- name: MutatingAdmissionPolicy\n  configuration:\n" +
		"    apiVersion: apiserver.config.k8s.io/v1\n    kind: MutatingAdmissionPolicyConfiguration\n    staticManifestsDir: " + manifests + "\n"
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c := cluster.Start(t, cluster.Options{Native: true, Flags: []string{"--admission-control-config-file=" + config}})
	for _, ns := range []string{"shop", "bank", "other"} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": ns}}}
		if _, err := c.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	changed := 0
	for _, u := range objects(t, filepath.Join("testdata", "static", "objects.yaml")) {
		want := evaluated(t, policies, u)
		got, err := tryCreate(t.Context(), c, u)
		if err != nil {
			t.Fatalf("%s/%s: %v", u.GetNamespace(), u.GetName(), err)
		}
		if !hasAll(got.Object, want.Object) || !reflect.DeepEqual(got.GetLabels(), want.GetLabels()) || !reflect.DeepEqual(got.GetAnnotations(), want.GetAnnotations()) {
			t.Errorf("%s/%s: the server stores\n%s\nand mapd makes\n%s", u.GetNamespace(), u.GetName(), asYAML(t, got), asYAML(t, want))
		}
		if !reflect.DeepEqual(want.GetAnnotations(), u.GetAnnotations()) {
			changed++
		}
	}
	if changed != 5 {
		t.Errorf("%d objects are changed, not 5", changed)
	}

	// A server takes changed files without a restart.
	data, err := os.ReadFile(policies)
	if err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(dir, "policies.yaml")
	if err := os.WriteFile(again, bytes.ReplaceAll(data, []byte("first: one"), []byte("first: two")), 0o644); err != nil {
		t.Fatal(err)
	}
	export(t, again, manifests)
	cluster.Eventually(t, cluster.Patience, "the changed parameter", func(ctx context.Context) error {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "later", "namespace": "shop"}}}
		got, err := tryCreate(ctx, c, u)
		if err == nil && got.GetAnnotations()["first"] != "two" {
			err = fmt.Errorf("annotations %v", got.GetAnnotations())
		}
		return err
	})

	// What is read from a cluster becomes what is read from files.
	native := bytes.ReplaceAll(data, []byte("admissionregistration.mapd.dev"), []byte("admissionregistration.k8s.io"))
	native = bytes.ReplaceAll(native, []byte("nothing: null"), []byte("nothing: none")) // which kubectl apply leaves out
	stored := filepath.Join(dir, "native.yaml")
	if err := os.WriteFile(stored, native, 0o644); err != nil {
		t.Fatal(err)
	}
	definition, rest, _ := bytes.Cut(native, []byte("---\n"))
	c.Apply(t, string(definition))
	cluster.Eventually(t, cluster.Patience, "the kind of the parameters", func(ctx context.Context) error {
		_, err := c.Dynamic.Resource(schema.GroupVersionResource{Group: "e2e.mapd.dev", Version: "v1", Resource: "settings"}).List(ctx, metav1.ListOptions{})
		return err
	})
	c.Apply(t, string(rest))
	files, live := filepath.Join(dir, "files"), filepath.Join(dir, "live")
	export(t, stored, files)
	t.Logf("%s", output(t, exec.Command(cluster.Binary(t), "export", "--static", "--from-cluster", "--native", "--kubeconfig", c.Kubeconfig(t, c.Config, ""), "--output-dir", live)))
	if want, got := readAll(t, files), readAll(t, live); len(want) == 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("from the cluster:\n%s\nfrom files:\n%s", got, want)
	}
}

// readAll returns the files of a directory.
func readAll(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(data)
	}
	return all
}

// export writes manifests for policies.
func export(t *testing.T, policies, dir string) {
	t.Helper()
	t.Logf("%s", output(t, exec.Command(cluster.Binary(t), "export", "--static", "-p", policies, "--output-dir", dir)))
}

// evaluated returns what mapd eval makes of an object.
func evaluated(t *testing.T, policies string, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	cmd := exec.Command(cluster.Binary(t), "eval", "-q", "-p", policies, "-f", "-", "-o", "yaml")
	cmd.Stdin = bytes.NewReader(asYAML(t, u))
	out := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(output(t, cmd)), &out.Object); err != nil {
		t.Fatal(err)
	}
	return out
}

func tryCreate(ctx context.Context, c *cluster.Cluster, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	resource := map[string]string{"ConfigMap": "configmaps", "Pod": "pods"}[u.GetKind()]
	return c.Dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace(u.GetNamespace()).Create(ctx, u.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

func objects(t *testing.T, file string) (out []*unstructured.Unstructured) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range bytes.Split(data, []byte("---\n")) {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(doc, &u.Object); err != nil {
			t.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

func asYAML(t *testing.T, u *unstructured.Unstructured) []byte {
	t.Helper()
	text, err := yaml.Marshal(u.Object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// hasAll reports whether a value has everything of another, beside which a server fills in
// defaults.
func hasAll(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		m, _ := got.(map[string]any)
		for k, v := range want {
			if !hasAll(m[k], v) {
				return false
			}
		}
		return m != nil
	case []any:
		list, _ := got.([]any)
		for i, v := range want {
			if i >= len(list) || !hasAll(list[i], v) {
				return false
			}
		}
		return len(list) >= len(want)
	}
	a, errA := json.Marshal(got)
	b, errB := json.Marshal(want)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
