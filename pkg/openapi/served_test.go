package openapi

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/hammer"
)

func mustServed(t testing.TB, src string) Source {
	t.Helper()
	s, err := Served(&unstructured.Unstructured{Object: mustTree(t, src)}, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A definition of a server gives what the same one in a file gives.
func TestServedIsLikeCRDs(t *testing.T) {
	for _, src := range []string{widgetCRD, gadgetCRD} {
		served, read := mustServed(t, src), mustCRDs(t, src)
		if diff := cmp.Diff(read.Resources(), served.Resources()); diff != "" {
			t.Errorf("resources differ (-CRDs +Served):\n%s", diff)
		}
		if diff := cmp.Diff(read.GroupVersions(), served.GroupVersions()); diff != "" {
			t.Errorf("group-versions differ (-CRDs +Served):\n%s", diff)
		}
		ours, theirs := New(served), New(read)
		for gvk := range read.(*crdSource).models {
			k, err := ours.Kind(gvk)
			if err != nil {
				t.Fatal(err)
			}
			want, err := theirs.Kind(gvk)
			if err != nil {
				t.Fatal(err)
			}
			s, ref := k.Schema()
			ws, wref := want.Schema()
			if diff := cmp.Diff(flatten(ws, wref), flatten(s, ref)); diff != "" {
				t.Errorf("%v: schema differs (-CRDs +Served):\n%s", gvk, diff)
			}
			in := map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind, "metadata": map[string]any{"name": "x"}}
			got, err := k.Settle(nil, in, FromApply)
			if err != nil {
				t.Fatal(err)
			}
			settled, err := want.Settle(nil, in, FromApply)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(settled, got); diff != "" {
				t.Errorf("%v: settles differently (-CRDs +Served):\n%s", gvk, diff)
			}
		}
		if served.Lookup(schema.GroupVersionKind{Group: "ex.io", Version: "v1alpha1", Kind: "Gadget"}) != nil {
			t.Error("a version that is not served has a model")
		}
	}
}

// What a newer server may have added does not hinder.
func TestServedPassesOverWhatIsNew(t *testing.T) {
	obj := mustTree(t, widgetCRD)
	spec := obj["spec"].(map[string]any)
	spec["novelty"] = map[string]any{"a": int64(1)}
	for _, v := range spec["versions"].([]any) {
		v.(map[string]any)["novelty"] = true
		v.(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)["x-kubernetes-novelty"] = true
	}
	u := &unstructured.Unstructured{Object: obj}
	if _, err := CRDs(u); err == nil {
		t.Fatal("CRDs took it: the test tests nothing")
	}
	s, err := Served(u, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	if s.Lookup(schema.GroupVersionKind{Group: "ex.io", Version: "v1", Kind: "Widget"}) == nil {
		t.Error("no Widget")
	}
}

func TestServedRefuses(t *testing.T) {
	if _, err := Served(&unstructured.Unstructured{Object: mustTree(t, "{apiVersion: v1, kind: Pod, metadata: {name: x}}")}, nil); err == nil {
		t.Error("a Pod was taken for a definition")
	}
	const src = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.ex.io}
spec:
  group: ex.io
  scope: Namespaced
  names: {plural: foos, kind: Foo}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {a: {}}}}}
`
	var errs []string
	s, err := Served(&unstructured.Unstructured{Object: mustTree(t, src)}, func(err error) { errs = append(errs, err.Error()) })
	if err != nil {
		t.Fatal(err)
	}
	types := New(s)
	gvk := schema.GroupVersionKind{Group: "ex.io", Version: "v1", Kind: "Foo"}
	for range 2 {
		if _, err := types.Kind(gvk); errString(err) != "no corresponding type for ex.io/v1, Kind=Foo" {
			t.Errorf("Kind error = %v", err)
		}
	}
	want := []string{"spec.versions[1].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields"}
	if diff := cmp.Diff(want, errs); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if _, ok := types.ResourceFor(gvk); !ok {
		t.Error("its resource is not known")
	}
}

// A document as a server publishes it gives the schemas that were made of it
// beforehand.
func TestDocumentIsLikeBuiltin(t *testing.T) {
	hammer.Alone(t)
	dir, err := kubernetes()
	if err != nil {
		t.Skipf("the Kubernetes module is not to be had: %v", err)
	}
	for _, d := range builtin().index.Documents {
		if !slices.Contains([]string{"core_v1.json.zst", "apps_v1.json.zst", "autoscaling_v2.json.zst", "policy_v1.json.zst"}, d.File) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, "api", "openapi-spec", "v3", d.Source))
		if err != nil {
			t.Fatal(err)
		}
		gv := schema.GroupVersion{Group: d.Group, Version: d.Version}
		src, err := Document(gv, data)
		if err != nil {
			t.Fatal(err)
		}
		models := builtin().documents[gv].models
		if got := src.(*documentSource).models; len(got) != len(models) {
			t.Errorf("%v has %d kinds, want %d", gv, len(got), len(models))
		}
		for kind := range models {
			if kind == "WatchEvent" || kind == "DeleteOptions" {
				continue // nothing that is patched
			}
			m := src.Lookup(gv.WithKind(kind))
			if m == nil {
				t.Errorf("no %v", gv.WithKind(kind))
				continue
			}
			s, ref := m.Schema()
			ws, wref := models[kind].Schema()
			if diff := cmp.Diff(flatten(ws, wref), flatten(s, ref)); diff != "" {
				t.Errorf("%s: schema differs (-Builtin +Document):\n%s", kind, diff)
			}
		}
	}
}

func TestDocumentErrors(t *testing.T) {
	gv := schema.GroupVersion{Group: "ex.io", Version: "v1"}
	for in, want := range map[string]string{
		`{`: "the OpenAPI document of ex.io/v1: unexpected end of JSON input",
		`{"components":{"schemas":{"A":{"type":"array"}}}}`: "the OpenAPI document of ex.io/v1: array should have exactly one sub-item",
	} {
		if _, err := Document(gv, []byte(in)); err == nil {
			t.Errorf("Document(%s) succeeded, want %q", in, want)
		}
	}
	s, err := Document(gv, []byte(`{"components":{"schemas":{"A":{"type":"object","x-kubernetes-group-version-kind":[{"group":"ex.io","kind":"A","version":"v1"},{"group":"ex.io","kind":"A","version":"v2"}]}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if s.Lookup(gv.WithKind("A")) == nil || s.Lookup(gv.WithKind("B")) != nil ||
		s.Lookup(schema.GroupVersionKind{Group: "ex.io", Version: "v2", Kind: "A"}) != nil {
		t.Error("Lookup finds what is not there or the other way round")
	}
}

func TestUpdate(t *testing.T) {
	widget := schema.GroupVersionKind{Group: "ex.io", Version: "v1", Kind: "Widget"}
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	types := New(Builtin())
	if _, err := types.Kind(widget); errString(err) != "no schema for ex.io/v1, Kind=Widget" {
		t.Errorf("Kind before = %v", err)
	}
	podKind, err := types.Kind(pod)
	if err != nil {
		t.Fatal(err)
	}

	widgets := mustServed(t, widgetCRD)
	types.Update(Builtin(), widgets)
	widgetKind, err := types.Kind(widget)
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := types.ResourceFor(widget); !ok || r.GVR.Resource != "widgets" {
		t.Errorf("ResourceFor = %v, %v", r, ok)
	}
	if k, _ := types.Kind(pod); k != podKind {
		t.Error("a kind of a source that stayed is another *Kind")
	}

	types.Update(widgets, Builtin(), mustServed(t, gadgetCRD))
	if k, _ := types.Kind(widget); k != widgetKind {
		t.Error("a kind of a source that stayed is another *Kind")
	}
	if n := len(types.Equivalents(schema.GroupVersionResource{Group: "ex.io", Version: "v1", Resource: "gadgets"})); n != 2 {
		t.Errorf("gadgets have %d equivalents, want 2", n)
	}

	types.Update(Builtin(), mustServed(t, widgetCRD))
	if k, _ := types.Kind(widget); k == widgetKind {
		t.Error("a kind of a source that was replaced is the same *Kind")
	}

	types.Update(Builtin())
	if _, err := types.Kind(widget); errString(err) != "no schema for ex.io/v1, Kind=Widget" {
		t.Errorf("Kind after = %v", err)
	}
	if _, ok := types.ResourceFor(widget); ok {
		t.Error("the resource is still known")
	}
	if s, _ := widgetKind.Schema(); s == nil {
		t.Error("a kind that was handed out has lost its schema")
	}
}

// Looking a kind up again allocates nothing.
func TestKindAllocates(t *testing.T) {
	types := New(Builtin(), mustServed(t, widgetCRD))
	for _, gvk := range []schema.GroupVersionKind{{Version: "v1", Kind: "Pod"}, {Group: "ex.io", Version: "v1", Kind: "Widget"}} {
		if _, err := types.Kind(gvk); err != nil {
			t.Fatal(err)
		}
		if n := hammer.Allocs(t, func() { types.Kind(gvk) }); n != 0 {
			t.Errorf("Kind(%v) allocates %v times, want 0", gvk, n)
		}
	}
}

// Readers always see one whole set of sources: either none of both kinds or a
// pair of one generation.
func TestHammerUpdate(t *testing.T) {
	const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.ex.io}
spec:
  group: ex.io
  scope: Namespaced
  names: {plural: %[1]s, kind: %[1]s}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {%[2]s: {type: string}}}}}}}
`
	gens := [][]Source{{Builtin()}}
	for _, field := range []string{"a", "b"} {
		gens = append(gens, []Source{Builtin(), mustServed(t, fmt.Sprintf(crd, "foos", field)), mustServed(t, fmt.Sprintf(crd, "bars", field))})
	}
	types := New(gens[0]...)
	foo := schema.GroupVersionKind{Group: "ex.io", Version: "v1", Kind: "foos"}
	pod := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !stop.Load() {
				if _, err := types.Kind(pod); err != nil {
					t.Error(err)
					return
				}
				types.Equivalents(schema.GroupVersionResource{Version: "v1", Resource: "events"})
				types.ResourceFor(foo)
				types.KindFor(schema.GroupVersionResource{Group: "ex.io", Version: "v1", Resource: "foos"}, "")
				k, err := types.Kind(foo)
				if err != nil {
					continue
				}
				obj := map[string]any{"apiVersion": "ex.io/v1", "kind": "foos", "metadata": map[string]any{"name": "x"}}
				if err := k.Validate(obj); err != nil {
					t.Error(err)
					return
				}
				if out, err := k.Settle(nil, obj, FromApply); err != nil || !tree.Equal(out, obj) {
					t.Errorf("Settle = %v, %v", out, err)
					return
				}
			}
		})
	}
	for i := range 2000 {
		types.Update(gens[i%len(gens)]...)
	}
	stop.Store(true)
	wg.Wait()
}

// bigCRD is a definition of n fields with descriptions.
func bigCRD(t testing.TB, name string, n int) *unstructured.Unstructured {
	t.Helper()
	fields := map[string]any{}
	for i := range n {
		fields[fmt.Sprintf("field%d", i)] = map[string]any{
			"type": "object", "description": fmt.Sprintf("%s %d says at some length what people have to know before they set it.", name, i),
			"properties": map[string]any{
				"name":  map[string]any{"type": "string", "description": "How it is called.", "default": "x"},
				"ports": map[string]any{"type": "array", "items": map[string]any{"type": "object", "properties": map[string]any{"port": map[string]any{"type": "integer", "description": "A number from 1 to 65535."}}}},
			},
		}
	}
	data, err := json.Marshal(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name + ".ex.io"},
		"spec": map[string]any{
			"group": "ex.io", "scope": "Namespaced", "names": map[string]any{"plural": name, "kind": name},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "properties": fields}}}}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return u
}

// BenchmarkServed takes a definition of some 50 KB from a server; "open" makes
// its schema, too.
func BenchmarkServed(b *testing.B) {
	u := bigCRD(b, "things", 150)
	gvk := schema.GroupVersionKind{Group: "ex.io", Version: "v1", Kind: "things"}
	b.Run("keep", func(b *testing.B) {
		b.ReportAllocs()
		var kept int
		for b.Loop() {
			s, err := Served(u, func(err error) { b.Error(err) })
			if err != nil {
				b.Fatal(err)
			}
			kept = len(s.(*servedSource).packed)
		}
		b.ReportMetric(float64(kept), "kept-B")
	})
	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s, err := Served(u, func(err error) { b.Error(err) })
			if err != nil {
				b.Fatal(err)
			}
			if s.Lookup(gvk) == nil {
				b.Fatal("no such kind")
			}
		}
	})
}

// BenchmarkUpdate replaces one definition among 500, with some of their kinds
// in use.
func BenchmarkUpdate(b *testing.B) {
	sources := []Source{Builtin()}
	for i := range 500 {
		sources = append(sources, mustServed(b, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos%[1]d.ex.io}
spec:
  group: ex.io
  scope: Namespaced
  names: {plural: foos%[1]d, kind: Foo%[1]d}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`, i)))
	}
	types := New(sources...)
	for i := range 10 {
		if _, err := types.Kind(schema.GroupVersionKind{Group: "ex.io", Version: "v1", Kind: fmt.Sprintf("Foo%d", i)}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		types.Update(sources...)
	}
}

// BenchmarkKind is what every request pays, some times.
func BenchmarkKind(b *testing.B) {
	types := New(Builtin())
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := types.Kind(gvk); err != nil {
			b.Fatal(err)
		}
	}
}

// A source that repeats a resource adds nothing, and the order is not that of the
// sources.
func TestTypesListResources(t *testing.T) {
	var got []string
	for _, r := range New(mustCRDs(t, widgetCRD), Builtin(), mustCRDs(t, widgetCRD)).Resources() {
		got = append(got, r.GVR.Group+"/"+r.GVR.Version+"/"+r.GVR.Resource)
	}
	sorted := slices.Clone(got)
	slices.Sort(sorted)
	for _, want := range []string{"/v1/pods", "apps/v1/deployments"} {
		if !slices.Contains(got, want) {
			t.Errorf("Resources() lacks %s", want)
		}
	}
	if n := len(slices.Compact(sorted)); n != len(got) {
		t.Errorf("Resources() lists %d of %d twice", len(got)-n, len(got))
	}
	if len(New().Resources()) != 0 {
		t.Error("no sources have resources")
	}
}
