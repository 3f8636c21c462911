package defaulting_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/apiserver/defaulting"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/tree"
)

// observations reads testdata: pairs of a manifest and what a server made of it.
func observations(t testing.TB) map[string][2]map[string]any {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pairs := map[string][2]map[string]any{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sent, seen, ok := bytes.Cut(data, []byte("\n---\n"))
		if !ok {
			t.Fatalf("%s: want two documents", file)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		pairs[name] = [2]map[string]any{decode(t, file, sent), decode(t, file, seen)}
	}
	return pairs
}

func decode(t testing.TB, file string, document []byte) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON(document)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	obj, err := tree.Decode(data)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return obj
}

// madeOfNothing names the observations in which an empty list that stood for a
// choice is lost when the object is written, so that a second server would fill
// it in.
var madeOfNothing = map[string]bool{"hpa-v2-behavior-empty": true}

func TestObserved(t *testing.T) {
	types := openapi.New(openapi.Builtin())
	for name, pair := range observations(t) {
		t.Run(name, func(t *testing.T) {
			manifest, observed := pair[0], pair[1]
			normalize := func(obj map[string]any) map[string]any {
				t.Helper()
				gvk := schema.FromAPIVersionAndKind(obj["apiVersion"].(string), obj["kind"].(string))
				kind, err := types.Kind(gvk)
				if err != nil {
					t.Fatal(err)
				}
				obj, err = kind.Normalize(obj)
				if err != nil {
					t.Fatal(err)
				}
				return obj
			}
			before, err := json.Marshal(manifest)
			if err != nil {
				t.Fatal(err)
			}
			out, known := defaulting.Apply(manifest)
			if !known {
				t.Fatal("no table for this kind")
			}
			if after, err := json.Marshal(manifest); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the input changed: %s", after)
			}
			if again, _ := defaulting.Apply(out); !tree.Same(again, out) {
				t.Errorf("applied to its own result: %s", cmp.Diff(out, again))
			}

			want := normalize(observed)
			if diff := cmp.Diff(want, normalize(out)); diff != "" {
				t.Errorf("Normalize(Apply(manifest)): -observed +got\n%s", diff)
			}
			if madeOfNothing[name] {
				return
			}
			// What a server has made of an object needs nothing more.
			if out, _ := defaulting.Apply(observed); !tree.Same(out, observed) {
				t.Errorf("Apply(observed): -observed +got\n%s", cmp.Diff(observed, out))
			}
		})
	}
}

func TestSharing(t *testing.T) {
	template := map[string]any{"labels": map[string]any{"app": "web"}}
	obj := map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": template,
		"spec":     map[string]any{"selector": template, "ports": []any{map[string]any{"port": int64(80)}}},
	}
	out, _ := defaulting.Apply(obj)
	if tree.Same(out, obj) {
		t.Fatal("nothing was filled in")
	}
	if !tree.Same(out["metadata"], obj["metadata"]) {
		t.Error("metadata was copied")
	}
	if !tree.Same(out["spec"].(map[string]any)["selector"], template) {
		t.Error("spec.selector was copied")
	}
}

func TestNothingToAdd(t *testing.T) {
	for name, tc := range map[string]struct {
		apiVersion, kind any
		known            bool
	}{
		"no defaults":       {"v1", "ConfigMap", true},
		"custom kind":       {"example.com/v1", "Pod", false},
		"another version":   {"v2", "Pod", false},
		"kind of no string": {"v1", int64(1), false},
		"no kind":           {nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			obj := map[string]any{"apiVersion": tc.apiVersion, "kind": tc.kind, "spec": map[string]any{}}
			out, known := defaulting.Apply(obj)
			if known != tc.known || !tree.Same(out, obj) {
				t.Errorf("Apply = %v, %v, want the object itself, %v", out, known, tc.known)
			}
		})
	}
	if out, known := defaulting.Apply(nil); out != nil || known {
		t.Errorf("Apply(nil) = %v, %v", out, known)
	}
}

// TestEveryKind finds a built-in kind without a table. Whether the tables are right is
// what test/scheme finds out.
func TestEveryKind(t *testing.T) {
	types := openapi.New(openapi.Builtin())
	known := func(gvk schema.GroupVersionKind) {
		t.Helper()
		if _, known := defaulting.Apply(map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind}); !known {
			t.Errorf("no table for %s", gvk)
		}
	}
	for _, r := range types.Resources() {
		known(r.Kind)
		for _, sub := range r.Subresources {
			if gvk, ok := types.KindFor(r.GVR, sub); ok {
				known(gvk)
			}
		}
	}
}
