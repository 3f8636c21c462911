package openapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/mapd-project/mapd/pkg/openapi/smd"
	"github.com/mapd-project/mapd/test/hammer"
)

// flatten writes the part of a schema that a type reaches, every name at its
// first use spelled out, so that two schemas compare whatever their order.
func flatten(s *smd.Schema, ref smd.TypeRef) map[string]any {
	out := map[string]any{}
	var atom func(a smd.Atom) map[string]any
	visit := func(ref smd.TypeRef) map[string]any {
		r := map[string]any{"nullable": ref.Nullable}
		if ref.ElementRelationship != nil {
			r["relationship"] = *ref.ElementRelationship
		}
		if ref.NamedType == nil {
			r["inlined"] = atom(ref.Inlined)
			return r
		}
		name := *ref.NamedType
		r["named"] = name
		if _, done := out[name]; !done {
			out[name] = nil
			def, ok := s.Resolve(smd.TypeRef{NamedType: &name})
			if !ok {
				out[name] = "missing"
			} else {
				out[name] = atom(def)
			}
		}
		return r
	}
	atom = func(a smd.Atom) map[string]any {
		r := map[string]any{}
		if a.Scalar != nil {
			r["scalar"] = string(*a.Scalar)
		}
		if a.List != nil {
			r["list"] = []any{a.List.ElementRelationship, a.List.Keys, visit(a.List.ElementType)}
		}
		if a.Map != nil {
			fields := map[string]any{}
			for _, f := range a.Map.Fields {
				fields[f.Name] = []any{f.Default, visit(f.Type)}
			}
			r["map"] = []any{a.Map.ElementRelationship, visit(a.Map.ElementType), fields}
		}
		return r
	}
	out["root"] = visit(ref)
	return out
}

// readModels returns the models of a document that a merge schema was made from.
func readModels(file string) (map[string]*spec.Schema, error) {
	data, err := os.ReadFile(filepath.Join("builtin", file))
	if err != nil {
		return nil, err
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	if data, err = d.DecodeAll(data, nil); err != nil {
		return nil, err
	}
	var models map[string]*spec.Schema
	return models, json.Unmarshal(data, &models)
}

// upstreamSchema is the schema of a kind in managedfields' own converter.
func upstreamSchema(t *testing.T, models map[string]*spec.Schema, gvk schema.GroupVersionKind) (*smd.Schema, smd.TypeRef) {
	t.Helper()
	tc, err := managedfields.NewTypeConverter(models, false)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	v, err := tc.ObjectToTyped(u)
	if err != nil {
		t.Fatal(err)
	}
	return v.Schema(), v.TypeRef()
}

// kubernetes is the directory of the Kubernetes module, if it can be had.
var kubernetes = sync.OnceValues(func() (string, error) {
	ix := builtin().index
	cmd := exec.Command("go", "mod", "download", "-json", ix.Module+"@"+ix.Revision)
	cmd.Dir = os.TempDir()
	out, err := cmd.Output()
	if err != nil {
		return "", err
	}
	var m struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &m); err != nil {
		return "", err
	}
	if m.Sum != ix.Sum {
		return "", fmt.Errorf("checksum %s, the index records %s", m.Sum, ix.Sum)
	}
	return m.Dir, nil
})

// The stripped documents give the schemas of the full ones.
func TestBuiltinSchemaIsUpstreams(t *testing.T) {
	hammer.Alone(t)
	dir, err := kubernetes()
	if err != nil {
		t.Skipf("the Kubernetes module is not to be had: %v", err)
	}
	types := New(Builtin())
	for _, d := range builtin().index.Documents {
		t.Run(d.File, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(dir, "api", "openapi-spec", "v3", d.Source))
			if err != nil {
				t.Fatal(err)
			}
			var doc spec3.OpenAPI
			if err := json.Unmarshal(data, &doc); err != nil {
				t.Fatal(err)
			}
			tc, err := managedfields.NewTypeConverter(doc.Components.Schemas, false)
			if err != nil {
				t.Fatal(err)
			}
			for _, k := range d.Kinds {
				name, _, _ := strings.Cut(k, "=")
				if name == "WatchEvent" {
					continue // has no apiVersion, so nothing that is patched
				}
				gvk := schema.GroupVersionKind{Group: d.Group, Version: d.Version, Kind: name}
				u := &unstructured.Unstructured{}
				u.SetGroupVersionKind(gvk)
				v, err := tc.ObjectToTyped(u)
				if err != nil {
					t.Fatalf("%v: %v", gvk, err)
				}
				kind, err := types.Kind(gvk)
				if err != nil {
					t.Fatal(err)
				}
				s, ref := kind.Schema()
				if want, got := flatten(v.Schema(), v.TypeRef()), flatten(s, ref); !reflect.DeepEqual(want, got) {
					t.Errorf("%v: schema differs (-upstream +ours):\n%s", gvk, gocmp.Diff(want, got))
				}
			}
		})
	}
}

// The index lists the files that are embedded, and all of them open.
func TestBuiltinFilesAreTheIndexs(t *testing.T) {
	ix := builtin().index
	if ix.Revision != "v1.37.2" || ix.Module != "k8s.io/kubernetes" || !strings.HasPrefix(ix.Sum, "h1:") {
		t.Errorf("index is of %s %s %s", ix.Module, ix.Revision, ix.Sum)
	}
	want := []string{"index.json"}
	for _, d := range ix.Documents {
		want = append(want, d.File, strings.TrimSuffix(d.File, ".json.zst")+".schema.zst")
	}
	slices.Sort(want)
	var got []string
	total := int64(0)
	entries, err := os.ReadDir("builtin")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got = append(got, e.Name())
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	slices.Sort(got)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("files differ from the index (-index +files):\n%s", diff)
	}
	if total > 512<<10 {
		t.Errorf("the files have %d bytes, want at most 512 KiB", total)
	}
	for gv, doc := range builtin().documents {
		s := doc.open()
		for kind, model := range doc.models {
			if _, ok := s.Resolve(smd.TypeRef{NamedType: &model.name}); !ok {
				t.Errorf("%v %s: no model %s", gv, kind, model.name)
			}
		}
	}
	if !slices.IsSortedFunc(ix.Documents, func(a, b builtinDocument) int { return cmp.Compare(a.Group, b.Group) }) {
		t.Error("documents are not sorted by group")
	}
}

func TestKind(t *testing.T) {
	types := New(Builtin(), mustCRDs(t, widgetCRD))
	tests := map[string]struct {
		gvk     schema.GroupVersionKind
		err     string
		builtin bool
		schema  bool
	}{
		"a built-in kind":             {gvk: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, builtin: true, schema: true},
		"its list":                    {gvk: schema.GroupVersionKind{Version: "v1", Kind: "PodList"}, builtin: true, schema: true},
		"a custom kind":               {gvk: schema.GroupVersionKind{Group: "ex.io", Version: "v1", Kind: "Widget"}, schema: true},
		"a custom list":               {gvk: schema.GroupVersionKind{Group: "ex.io", Version: "v1", Kind: "WidgetList"}, schema: true},
		"published elsewhere only":    {gvk: schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}, builtin: true, err: "no corresponding type for autoscaling/v1, Kind=Scale"},
		"not published: eviction":     {gvk: schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "Eviction"}, builtin: true, err: "no corresponding type for policy/v1, Kind=Eviction"},
		"not published: exec options": {gvk: schema.GroupVersionKind{Version: "v1", Kind: "PodExecOptions"}, builtin: true, err: "no corresponding type for /v1, Kind=PodExecOptions"},
		"unknown kind":                {gvk: schema.GroupVersionKind{Group: "ex.io", Version: "v1", Kind: "Gadget"}, err: "no corresponding type for ex.io/v1, Kind=Gadget"},
		"unknown version":             {gvk: schema.GroupVersionKind{Group: "ex.io", Version: "v2", Kind: "Widget"}, err: "no schema for ex.io/v2, Kind=Widget"},
		"unknown group":               {gvk: schema.GroupVersionKind{Group: "nope.io", Version: "v1", Kind: "Widget"}, err: "no schema for nope.io/v1, Kind=Widget"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			k, err := types.Kind(tt.gvk)
			if msg := errString(err); msg != tt.err {
				t.Fatalf("Kind(%v) error = %q, want %q", tt.gvk, msg, tt.err)
			}
			var noKind *NoKindError
			var noVersion *NoGroupVersionError
			if err != nil && errors.As(err, &noKind) == errors.As(err, &noVersion) {
				t.Errorf("Kind(%v) error is a %T", tt.gvk, err)
			}
			if s, _ := k.Schema(); k.Builtin() != tt.builtin || (s != nil) != tt.schema {
				t.Errorf("Kind(%v): Builtin() = %v, has a schema: %v; want %v, %v", tt.gvk, k.Builtin(), s != nil, tt.builtin, tt.schema)
			}
		})
	}
}

func errString(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Every kind that the embedded documents serve has a Go type but this one,
// whose types would bring in the aggregator.
func TestServedKindsHaveGoTypes(t *testing.T) {
	for _, r := range builtin().Resources() {
		kinds := []schema.GroupVersionKind{r.Kind}
		for _, k := range r.SubresourceKinds {
			kinds = append(kinds, k)
		}
		for _, gvk := range kinds {
			if has, want := goTypes().of(gvk) != nil, gvk.Kind != "APIService"; has != want {
				t.Errorf("%v has a Go type: %v, want %v", gvk, has, want)
			}
		}
	}
}

func TestResources(t *testing.T) {
	types := New(Builtin(), mustCRDs(t, widgetCRD))
	r, ok := types.ResourceFor(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	if want := (schema.GroupVersionResource{Version: "v1", Resource: "pods"}); !ok || r.GVR != want || !r.Namespaced || !slices.Contains(r.Subresources, "exec") {
		t.Errorf("ResourceFor(Pod) = %+v, %v", r, ok)
	}
	r, ok = types.ResourceFor(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"})
	if !ok || r.Namespaced || !slices.Equal(r.Subresources, []string{"finalize", "status"}) {
		t.Errorf("ResourceFor(Namespace) = %+v, %v", r, ok)
	}
	if _, ok := types.ResourceFor(schema.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}); ok {
		t.Error("ResourceFor(Scale) found something; it is a subresource only")
	}
	for in, want := range map[string]string{
		"/v1/pods/":                 "/v1/Pod",
		"/v1/pods/status":           "/v1/Pod",
		"/v1/pods/exec":             "/v1/PodExecOptions",
		"/v1/pods/eviction":         "policy/v1/Eviction",
		"/v1/pods/binding":          "/v1/Binding",
		"/v1/bindings/":             "/v1/Binding",
		"/v1/pods/nope":             "",
		"/v1/serviceaccounts/token": "authentication.k8s.io/v1/TokenRequest",
		"apps/v1/deployments/scale": "autoscaling/v1/Scale",
		"ex.io/v1/widgets/":         "ex.io/v1/Widget",
		"ex.io/v1/widgets/status":   "ex.io/v1/Widget",
		"ex.io/v1/widgets/scale":    "autoscaling/v1/Scale",
		"ex.io/v1/gadgets/":         "",
		"authorization.k8s.io/v1/subjectaccessreviews/": "authorization.k8s.io/v1/SubjectAccessReview",
	} {
		p := strings.Split(in, "/")
		gvk, ok := types.KindFor(schema.GroupVersionResource{Group: p[0], Version: p[1], Resource: p[2]}, p[3])
		got := gvk.Group + "/" + gvk.Version + "/" + gvk.Kind
		if !ok {
			got = ""
		}
		if got != want {
			t.Errorf("KindFor(%s) = %q, want %q", in, got, want)
		}
	}
}

func TestEquivalents(t *testing.T) {
	types := New(Builtin(), mustCRDs(t, widgetCRD, gadgetCRD))
	for in, want := range map[string][]string{
		"/v1/pods":                nil,
		"/v1/events":              {"events.k8s.io/v1, Resource=events"},
		"events.k8s.io/v1/events": {"/v1, Resource=events"},
		"autoscaling/v1/horizontalpodautoscalers": {"autoscaling/v2, Resource=horizontalpodautoscalers"},
		// A stock server serves the first of these versions only.
		"resource.k8s.io/v1/deviceclasses":      nil,
		"resource.k8s.io/v1beta2/deviceclasses": nil,
		"ex.io/v1/widgets":                      nil,
		"ex.io/v1/gadgets":                      {"ex.io/v2, Resource=gadgets", "ex.io/v1beta1, Resource=gadgets"},
		"ex.io/v1beta1/gadgets":                 {"ex.io/v2, Resource=gadgets", "ex.io/v1, Resource=gadgets"},
		"ex.io/v9/gadgets":                      nil,
	} {
		p := strings.Split(in, "/")
		var got []string
		for _, r := range types.Equivalents(schema.GroupVersionResource{Group: p[0], Version: p[1], Resource: p[2]}) {
			got = append(got, r.GVR.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("Equivalents(%s) = %q, want %q", in, got, want)
		}
	}
}

// Opening is lazy and happens once, whoever asks first.
func TestHammerOpen(t *testing.T) {
	types := New(Builtin())
	gvk := schema.GroupVersionKind{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}
	got := make([]*smd.Schema, 16)
	hammer.Run(len(got), 1, func(i, _ int) {
		k, err := types.Kind(gvk)
		if err != nil {
			t.Error(err)
			return
		}
		got[i], _ = k.Schema()
		if _, err := k.Normalize(map[string]any{"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}); err != nil {
			t.Error(err)
		}
	})
	for _, s := range got {
		if s == nil || s != got[0] {
			t.Fatal("schemas differ")
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, file := range []string{"core_v1.json.zst", "apps_v1.json.zst", "autoscaling_v2.json.zst"} {
		b.Run(file, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d := &document{file: file, size: 1 << 17}
				if d.open() == nil {
					b.Fatal("no schema")
				}
			}
		})
	}
}
