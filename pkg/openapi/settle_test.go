package openapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/schemaconv"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/mapd-project/mapd/pkg/openapi/smd"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/test/hammer"
)

func kindOf(t testing.TB, obj map[string]any) *Kind {
	t.Helper()
	types := New(Builtin(), mustCRDs(t, widgetCRD))
	k, _ := types.Kind((&unstructured.Unstructured{Object: obj}).GroupVersionKind())
	return k
}

const (
	configMap = `{apiVersion: v1, kind: ConfigMap, metadata: {name: x}, data: {a: "1"}}`
	small     = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 3, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c1, image: i}]}}}}`
	scale     = `{apiVersion: autoscaling/v1, kind: Scale, metadata: {name: d}, spec: {replicas: 3}}`
	widget    = `{apiVersion: ex.io/v1, kind: Widget, metadata: {name: w}, spec: {size: 3}}`
)

func TestSettle(t *testing.T) {
	add := func(path string, value any) []tree.Op { return []tree.Op{{Op: "add", Path: path, Value: value}} }
	tests := map[string]struct {
		object string
		patch  []tree.Op
		from   Decoding
		want   []tree.Op // what the result differs in from before
		err    string
	}{
		"nothing": {object: configMap},
		"a label": {object: configMap, patch: add("/metadata/labels", map[string]any{"x": "y"}), want: add("/metadata/labels", map[string]any{"x": "y"})},
		"a null label is empty text (spec T37)": {
			object: configMap, patch: add("/metadata/labels", map[string]any{"x": nil}),
			want: add("/metadata/labels", map[string]any{"x": ""}),
		},
		"an empty map vanishes (spec T38)":          {object: configMap, patch: add("/metadata/labels", map[string]any{})},
		"a null list vanishes":                      {object: configMap, patch: add("/metadata/finalizers", nil)},
		"the same data again are no change":         {object: configMap, patch: add("/data", map[string]any{"a": "1"})},
		"a removed required field comes back empty": {object: small, patch: []tree.Op{{Op: "remove", Path: "/spec/template/spec/containers/0/name"}}, want: []tree.Op{{Op: "replace", Path: "/spec/template/spec/containers/0/name", Value: ""}}},
		"a new container gets its required fields": {
			object: small, patch: add("/spec/template/spec/containers/-", map[string]any{"image": "i"}),
			want: add("/spec/template/spec/containers/1", map[string]any{"image": "i", "name": "", "resources": map[string]any{}}),
		},
		"null unsets a scalar (spec A29)":      {object: small, patch: add("/spec/replicas", nil), want: []tree.Op{{Op: "remove", Path: "/spec/replicas"}}},
		"null unsets after a merge (spec A19)": {object: small, patch: add("/spec/replicas", nil), from: FromApply, want: []tree.Op{{Op: "remove", Path: "/spec/replicas"}}},
		"5.0 is 5":                             {object: small, patch: add("/spec/replicas", 5.0), want: []tree.Op{{Op: "replace", Path: "/spec/replicas", Value: int64(5)}}},
		"5.0 is 5 after a merge (spec A23)":    {object: small, patch: add("/spec/replicas", 5.0), from: FromApply, want: []tree.Op{{Op: "replace", Path: "/spec/replicas", Value: int64(5)}}},
		"a quantity is spelled canonically": {
			object: small, patch: add("/spec/template/spec/containers/0/resources/limits", map[string]any{"cpu": "0.5", "memory": int64(2)}),
			want: add("/spec/template/spec/containers/0/resources/limits", map[string]any{"cpu": "500m", "memory": "2"}),
		},
		"kind and apiVersion come back":     {object: configMap, patch: []tree.Op{{Op: "remove", Path: "/kind"}, {Op: "remove", Path: "/apiVersion"}}},
		"a subresource kind without schema": {object: scale, patch: add("/spec/replicas", 7.0), want: []tree.Op{{Op: "replace", Path: "/spec/replicas", Value: int64(7)}}},

		"unknown field (spec A12)": {object: configMap, patch: add("/bogus", "x"), err: `strict decoding error: unknown field "bogus"`},
		"unknown field below":      {object: small, patch: add("/spec/template/spec/containers/0/bogus", "x"), err: `strict decoding error: unknown field "spec.template.spec.containers[0].bogus"`},
		"two unknown fields":       {object: configMap, patch: append(add("/b", "x"), add("/a", "x")...), err: `strict decoding error: unknown field "a", unknown field "b"`},
		"wrong type":               {object: small, patch: add("/spec/replicas", "5"), err: `json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32`},
		"a fraction":               {object: small, patch: add("/spec/replicas", 5.5), err: `json: cannot unmarshal number 5.5 into Go struct field DeploymentSpec.spec.replicas of type int32`},
		"a fraction after a merge": {object: small, patch: add("/spec/replicas", 5.7), from: FromApply, err: `unable to convert unstructured object to apps/v1, Kind=Deployment: cannot convert float64 to int32`},
		"too large":                {object: small, patch: add("/spec/replicas", int64(5000000000)), err: `json: cannot unmarshal number 5000000000 into Go struct field DeploymentSpec.spec.replicas of type int32`},
		"too large after a merge, which upstream wraps (spec T7)": {object: small, patch: add("/spec/replicas", int64(5000000000)), from: FromApply, err: `unable to convert unstructured object to apps/v1, Kind=Deployment: spec.replicas: 5000000000 does not fit int32`},
		"too large and a float":                                   {object: small, patch: add("/spec/replicas", 5e9), from: FromApply, err: `unable to convert unstructured object to apps/v1, Kind=Deployment: spec.replicas: 5e+09 does not fit int32`},
		"a malformed quantity":                                    {object: small, patch: add("/spec/template/spec/containers/0/resources/limits", map[string]any{"cpu": "much"}), from: FromApply, err: `unable to convert unstructured object to apps/v1, Kind=Deployment: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'`},
		"another version":                                         {object: configMap, patch: add("/apiVersion", "v2"), err: `no kind "ConfigMap" is registered for version "v2" in scheme "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"`},
		"another kind":                                            {object: `{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}`, patch: add("/kind", "Secret"), err: `failed to convert object: converting (v1.Secret) to (core.ConfigMap): unknown conversion`},
		"a kind that is no text":                                  {object: configMap, patch: add("/kind", int64(1)), err: `couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string`},

		"custom: as it was":                     {object: widget},
		"custom: null and empty values stay":    {object: widget, patch: add("/spec/free", map[string]any{"known": "k", "a": nil, "b": map[string]any{}}), want: add("/spec/free", map[string]any{"known": "k", "a": nil, "b": map[string]any{}})},
		"custom: defaults":                      {object: widget, patch: add("/spec/ports", []any{map[string]any{"name": "a"}}), want: add("/spec/ports", []any{map[string]any{"name": "a", "port": int64(80), "v": "d", "nested": map[string]any{"x": "y"}}})},
		"custom: defaults after a merge":        {object: widget, patch: add("/spec/ports", []any{map[string]any{"name": "a"}}), from: FromApply, want: add("/spec/ports", []any{map[string]any{"name": "a", "port": int64(80), "v": "d", "nested": map[string]any{"x": "y"}}})},
		"custom: null is replaced by a default": {object: widget, patch: add("/spec/size", nil), want: []tree.Op{{Op: "replace", Path: "/spec/size", Value: int64(1)}}},
		"custom: unless null is allowed":        {object: widget, patch: add("/spec/mode", nil), want: []tree.Op{{Op: "replace", Path: "/spec/mode", Value: nil}}},
		"custom: a removed field":               {object: widget, patch: []tree.Op{{Op: "remove", Path: "/spec"}}, want: []tree.Op{{Op: "replace", Path: "/spec/size", Value: int64(1)}}},
		"custom: 5.0 is 5 in text":              {object: widget, patch: add("/spec/ratio", 5.0), want: add("/spec/ratio", int64(5))},
		"custom: 5.0 stays after a merge":       {object: widget, patch: add("/spec/ratio", 5.0), from: FromApply, want: add("/spec/ratio", 5.0)},
		"custom: unknown fields stay":           {object: widget, patch: add("/spec/bogus", "x"), want: add("/spec/bogus", "x")},
		"custom: no kind":                       {object: widget, patch: []tree.Op{{Op: "remove", Path: "/kind"}}, err: `Object 'Kind' is missing in '{"apiVersion":"ex.io/v1","metadata":{"name":"w"},"spec":{"mode":"a","size":3}}'`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			obj := mustTree(t, tt.object)
			k := kindOf(t, obj)
			before, err := k.Normalize(obj)
			if err != nil {
				t.Fatal(err)
			}
			patched, err := tree.Apply(before, tt.patch)
			if err != nil {
				t.Fatal(err)
			}
			got, err := k.Settle(before, patched.(map[string]any), tt.from)
			if errString(err) != tt.err {
				t.Fatalf("Settle error = %q, want %q", errString(err), tt.err)
			}
			if err != nil {
				return
			}
			want, err := tree.Apply(before, tt.want)
			if err != nil {
				t.Fatal(err)
			}
			if !tree.Equal(got, want) {
				t.Errorf("Settle differs (-want +got):\n%s", cmp.Diff(want, any(got)))
			}
			if tt.want == nil && !tree.Same(got, before) {
				t.Error("Settle gave another object for no change")
			}
		})
	}
}

// What needed no settling is handed back as it is, and what was not touched
// is shared.
func TestSettleShares(t *testing.T) {
	obj := mustTree(t, podSeed)
	k := kindOf(t, obj)
	before, err := k.Normalize(obj)
	if err != nil {
		t.Fatal(err)
	}
	after := withLabel(before, "x", "y")
	got, err := k.Settle(before, after, FromJSONPatch)
	if err != nil || !tree.Same(got, after) {
		t.Errorf("Settle made a copy (error %v)", err)
	}
	if !tree.Same(got["spec"], before["spec"]) {
		t.Error("the spec is not shared")
	}
	// The same through the round trip: a field that is null at first.
	odd := withLabel(before, "x", "y")
	delete(odd, "apiVersion")
	got, err = k.Settle(before, odd, FromJSONPatch)
	if err != nil || !tree.Same(got["spec"], before["spec"]) {
		t.Errorf("the round trip lost the identity of the spec (error %v)", err)
	}
}

func TestNormalize(t *testing.T) {
	tests := map[string]struct{ in, want, err string }{
		"a built-in kind": {
			in:   `{apiVersion: v1, kind: Service, metadata: {name: s, labels: {}}, spec: {ports: [{port: 80}]}}`,
			want: `{apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80, targetPort: 0}]}, status: {loadBalancer: {}}}`,
		},
		"an unknown field":       {in: `{apiVersion: v1, kind: Service, spec: {prots: []}}`, err: `strict decoding error: unknown field "spec.prots"`},
		"a custom kind":          {in: `{apiVersion: ex.io/v1, kind: Widget, metadata: {name: w}, spec: {size: null, ports: null}}`, want: `{apiVersion: ex.io/v1, kind: Widget, metadata: {name: w}, spec: {size: 1, mode: a}}`},
		"its unknown field":      {in: `{apiVersion: ex.io/v1, kind: Widget, metadata: {name: w, bogus: 1}, spec: {sise: 1}}`, err: `strict decoding error: unknown field "metadata.bogus", unknown field "spec.sise"`},
		"its metadata":           {in: `{apiVersion: ex.io/v1, kind: Widget, metadata: {labels: {a: 1}}}`, err: `json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string`},
		"a kind without schema":  {in: `{apiVersion: other.io/v1, kind: Thing, a: null}`, want: `{apiVersion: other.io/v1, kind: Thing, a: null}`},
		"an object without kind": {in: `{apiVersion: other.io/v1, a: 1}`, err: `Object 'Kind' is missing in '{"a":1,"apiVersion":"other.io/v1"}'`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			obj := mustTree(t, tt.in)
			got, err := kindOf(t, obj).Normalize(obj)
			if errString(err) != tt.err {
				t.Fatalf("Normalize error = %q, want %q", errString(err), tt.err)
			}
			if err != nil {
				return
			}
			if diff := cmp.Diff(mustTree(t, tt.want), got); diff != "" {
				t.Errorf("Normalize differs (-want +got):\n%s", diff)
			}
			if again, err := kindOf(t, got).Normalize(got); err != nil || !tree.Same(again, got) {
				t.Errorf("Normalize changed a normalized object: %v", err)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	for in, want := range map[string]string{
		`{apiVersion: v1, kind: ConfigMap, data: {a: "1"}}`:                                       "",
		`{apiVersion: v1, kind: ConfigMap, data: {a: 1}}`:                                         ".data.a: expected string, got &value.valueUnstructured{Value:1}",
		`{apiVersion: v1, kind: ConfigMap, nosuch: 1}`:                                            ".nosuch: field not declared in schema",
		`{apiVersion: v1, kind: Pod, spec: {containers: [{name: a}, {name: a}]}}`:                 "",
		`{apiVersion: autoscaling/v1, kind: Scale}`:                                               "no corresponding type for autoscaling/v1, Kind=Scale",
		`{apiVersion: ex.io/v1, kind: Widget, spec: {tags: [a, a], free: {x: 1}, target: "50%"}}`: "",
		`{apiVersion: ex.io/v1, kind: Widget, spec: {bogus: 1}}`:                                  ".spec.bogus: field not declared in schema",
	} {
		obj := mustTree(t, in)
		if got := errString(kindOf(t, obj).Validate(obj)); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("Validate(%s) = %q, want %q", in, got, want)
		}
	}
}

// newer is a source whose ConfigMap has fields that our Go type lacks.
type newer struct{}

func (newer) GroupVersions() []schema.GroupVersion { return []schema.GroupVersion{{Version: "v1"}} }
func (newer) Resources() []Resource                { return nil }
func (newer) Lookup(gvk schema.GroupVersionKind) Model {
	if gvk.Kind == "Pod" && gvk.Group == "" {
		return newer{}
	}
	return nil
}

func (newer) Schema() (*smd.Schema, smd.TypeRef) {
	specs, err := readModels("core_v1.json.zst")
	if err != nil {
		panic(err)
	}
	specs["io.k8s.api.core.v1.PodSpec"].SetProperty("next", *spec.StringProperty())
	specs["io.k8s.api.core.v1.Container"].SetProperty("knobs", *spec.MapProperty(spec.StringProperty()))
	s, err := schemaconv.ToSchemaFromOpenAPI(specs, false)
	if err != nil {
		panic(err)
	}
	name := "io.k8s.api.core.v1.Pod"
	return s, smd.TypeRef{NamedType: &name}
}

// Fields of a newer server survive, whatever else has to be settled.
func TestSettleKeepsNewerFields(t *testing.T) {
	k, err := New(newer{}).Kind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	if err != nil {
		t.Fatal(err)
	}
	before, err := k.Normalize(mustTree(t, `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {next: a, containers: [{name: a}, {name: b, knobs: {x: "y"}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	after, err := tree.Apply(before, []tree.Op{
		{Op: "add", Path: "/spec/next", Value: "b"},
		{Op: "add", Path: "/spec/hostNetwork", Value: false},
		{Op: "add", Path: "/spec/containers/1/knobs/z", Value: "w"},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []Decoding{FromJSONPatch, FromApply} {
		got, err := k.Settle(before, after.(map[string]any), from)
		if err != nil {
			t.Fatal(err)
		}
		want := mustTree(t, `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {next: b, containers: [{name: a, resources: {}}, {name: b, resources: {}, knobs: {x: "y", z: w}}]}, status: {}}`)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Settle differs (-want +got):\n%s", diff)
		}
	}
	after, err = tree.Apply(before, []tree.Op{{Op: "add", Path: "/spec/bogus", Value: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Settle(before, after.(map[string]any), FromJSONPatch); errString(err) != `strict decoding error: unknown field "spec.bogus"` {
		t.Errorf("Settle error = %v, want one about the field that nobody knows, and no other", err)
	}
}

// older is the core group of a server that lacks some fields of ours.
type older struct{ newer }

func (older) Lookup(gvk schema.GroupVersionKind) Model {
	if (newer{}).Lookup(gvk) == nil {
		return nil
	}
	return older{}
}

func (older) Schema() (*smd.Schema, smd.TypeRef) {
	specs, err := readModels("core_v1.json.zst")
	if err != nil {
		panic(err)
	}
	delete(specs["io.k8s.api.core.v1.PodSpec"].Properties, "hostUsers")
	delete(specs["io.k8s.api.core.v1.Container"].Properties, "resizePolicy")
	s, err := schemaconv.ToSchemaFromOpenAPI(specs, false)
	if err != nil {
		panic(err)
	}
	name := "io.k8s.api.core.v1.Pod"
	return s, smd.TypeRef{NamedType: &name}
}

// A field that an older server would lose without a word is refused.
func TestSettleRefusesOlderFields(t *testing.T) {
	k, err := New(older{}).Kind(schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	if err != nil {
		t.Fatal(err)
	}
	before, err := k.Normalize(mustTree(t, `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a}, {name: b}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	add := func(path string, value any) tree.Op { return tree.Op{Op: "add", Path: path, Value: value} }
	for _, tt := range []struct {
		name string
		ops  []tree.Op
		want string
	}{
		{"in a struct", []tree.Op{add("/spec/hostUsers", true)}, `strict decoding error: unknown field "spec.hostUsers"`},
		{"in new and old elements of a list", []tree.Op{
			add("/spec/containers/1/resizePolicy", []any{}),
			add("/spec/containers/0", map[string]any{"name": "c", "resizePolicy": nil}),
		}, `strict decoding error: unknown field "spec.containers[0].resizePolicy", unknown field "spec.containers[2].resizePolicy"`},
		{"of nobody's", []tree.Op{add("/spec/hostUsers", true), add("/spec/bogus", true)}, `strict decoding error: unknown field "spec.bogus"`},
		{"declared ones", []tree.Op{
			add("/metadata/labels", map[string]any{"a": "b"}), add("/spec/hostNetwork", true),
			add("/spec/containers/0/ports", []any{map[string]any{"containerPort": int64(80), "protocol": "TCP"}}),
			add("/spec/containers/1/resources", map[string]any{"limits": map[string]any{"cpu": "1"}}),
			add("/spec/containers/1/readinessProbe", map[string]any{"httpGet": map[string]any{"port": "web"}}),
			add("/metadata/managedFields", []any{map[string]any{"fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:spec": map[string]any{"f:a": map[string]any{}}}}}),
		}, ""},
	} {
		after, err := tree.Apply(before, tt.ops)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Settle(before, after.(map[string]any), FromJSONPatch); errString(err) != tt.want {
			t.Errorf("%s: Settle error = %v, want %q", tt.name, err, tt.want)
		}
	}
}

// withLabel changes a label as a patch does: copies along the path.
func withLabel(obj map[string]any, key, value string) map[string]any {
	out := clone(obj)
	meta := clone(out["metadata"].(map[string]any))
	labels := clone(meta["labels"].(map[string]any))
	labels[key] = value
	meta["labels"], out["metadata"] = labels, meta
	return out
}

func clone(m map[string]any) map[string]any {
	out := make(map[string]any, len(m)+1)
	for k, v := range m {
		out[k] = v
	}
	return out
}

// bigPod has 20 containers with 40 variables each, about 80 KiB.
func bigPod(t testing.TB) map[string]any {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: Pod\nmetadata: {name: big, labels: {app: web}}\nspec:\n  containers:\n")
	for i := range 20 {
		fmt.Fprintf(&b, "  - name: c%d\n    image: registry.example/app:%d\n    resources: {limits: {cpu: 500m}}\n    env:\n", i, i)
		for j := range 40 {
			fmt.Fprintf(&b, "    - {name: VARIABLE_%d, value: a value of some length that stands for real ones %d}\n", j, j)
		}
	}
	return mustTree(t, b.String())
}

// The cost of settling is that of the change, not of the object, and nothing
// is allocated where nothing needs settling.
func TestSettleAllocations(t *testing.T) {
	for name, obj := range map[string]map[string]any{"small": mustTree(t, podSeed), "big": bigPod(t)} {
		k := kindOf(t, obj)
		before, err := k.Normalize(obj)
		if err != nil {
			t.Fatal(err)
		}
		after := withLabel(before, "x", "y")
		for _, from := range []Decoding{FromJSONPatch, FromApply} {
			if n := hammer.Allocs(t, func() {
				if _, err := k.Settle(before, after, from); err != nil {
					t.Fatal(err)
				}
			}); n > 0 {
				t.Errorf("%s Pod: settling a label from %d allocates %v times, want 0", name, from, n)
			}
		}
	}
}

func BenchmarkSettle(b *testing.B) {
	for _, bb := range []struct {
		name string
		obj  map[string]any
	}{{"label/small", mustTree(b, podSeed)}, {"label/big", bigPod(b)}} {
		b.Run(bb.name, func(b *testing.B) {
			k := kindOf(b, bb.obj)
			before, err := k.Normalize(bb.obj)
			if err != nil {
				b.Fatal(err)
			}
			after := withLabel(before, "x", "y")
			b.ReportAllocs()
			for b.Loop() {
				got, err := k.Settle(before, after, FromJSONPatch)
				if err != nil || len(got) != len(after) {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("normalize/small", func(b *testing.B) {
		obj := mustTree(b, podSeed)
		k := kindOf(b, obj)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := k.Normalize(obj); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("roundtrip/small", func(b *testing.B) {
		obj := mustTree(b, podSeed)
		k := kindOf(b, obj)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := k.goType.roundTrip(obj, FromJSONPatch); err != nil {
				b.Fatal(err)
			}
		}
	})
}
