package policy

import (
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/google/go-cmp/cmp"

	"github.com/mapd-project/mapd/pkg/openapi"
)

// What the differential test has found, in small.
func TestFound(t *testing.T) {
	type mutations = []admissionregistrationv1.Mutation
	const (
		scale = `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"x"},"spec":{"replicas":1}}`
		exec  = `{"apiVersion":"v1","kind":"PodExecOptions","command":["sh"]}`
	)
	tests := map[string]struct {
		object    string
		mutations mutations
		want      map[string]any // nil: not looked at
		err       string         // of the last mutation
	}{
		"a Scale is decoded strictly": {
			object:    scale,
			mutations: mutations{jsonMutation(`[JSONPatch{op: "add", path: "/spec/x", value: 1}]`)},
			err:       `strict decoding error: unknown field "spec.x"`,
		},
		"a Scale's zero is left out": {
			object:    scale,
			mutations: mutations{jsonMutation(`[JSONPatch{op: "replace", path: "/spec/replicas", value: 0}]`)},
			want:      map[string]any{},
		},
		"the options of CONNECT are decoded strictly": {
			object:    exec,
			mutations: mutations{jsonMutation(`[JSONPatch{op: "add", path: "/command", value: 1}]`)},
			err:       "json: cannot unmarshal number into Go struct field PodExecOptions.command of type []string",
		},
		"an empty list of an apply configuration is null as text": {
			object: widget + `{}}`,
			mutations: mutations{
				applyMutation(`Object{spec: Object.spec{set: []}}`),
				jsonMutation(`[JSONPatch{op: "add", path: "/spec/set/0", value: "a"}]`),
			},
			err: `JSON Patch: add operation does not apply: doc is missing path: "/spec/set/0": missing value`,
		},
		"and so beside what the patch has changed": {
			object: widget + `{"n":1}}`,
			mutations: mutations{
				applyMutation(`Object{spec: Object.spec{set: []}}`),
				jsonMutation(`[JSONPatch{op: "move", path: "/spec/set/0", from: "/spec/n"}]`),
			},
			err: "JSON Patch: move operation does not apply: doc is missing destination path: /spec/set/0: missing value",
		},
		"and null after any JSON Patch": {
			object: widget + `{}}`,
			mutations: mutations{
				applyMutation(`Object{spec: Object.spec{set: []}}`),
				jsonMutation(`[JSONPatch{op: "add", path: "/spec/n", value: 1}]`),
			},
			want: map[string]any{"n": int64(1), "set": nil},
		},
		"infinity has no text": {
			object:    widget + `{}}`,
			mutations: mutations{applyMutation(`Object{spec: Object.spec{puf: Object.spec.puf{f: 1.0 / 0.0}}}`)},
			err:       "error applying patch: .spec.puf.f: json: unsupported value: +Inf",
		},
		"nor has what is in a list; the first one by name is named": {
			object:    widget + `{}}`,
			mutations: mutations{applyMutation(`Object{spec: Object.spec{puf: Object.spec.puf{f: 1.0 / 0.0, a: [1.0, -1.0 / 0.0, double(object.kind == "" ? 1 : 0) / 0.0]}}}`)},
			err:       "error applying patch: .spec.puf.a[1]: json: unsupported value: -Inf",
		},
		"what is no JSON data is one key": {
			object:    widget + `{}}`,
			mutations: mutations{applyMutation(`Object{spec: Object.spec{set: [dyn(quantity("1")), dyn(duration("1s"))]}}`)},
			err:       "duplicate entries for key",
		},
	}
	deps := testDeps(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, errs := run(compiled(t, deps, newPolicy(tt.mutations...)), newInput(object(t, tt.object)))
			text := ""
			if len(errs) > 0 {
				text = errs[0].Error()
			}
			if !strings.Contains(text, tt.err) || tt.err == "" && text != "" {
				t.Errorf("error = %q, want %q", text, tt.err)
			}
			if tt.want == nil {
				return
			}
			if diff := cmp.Diff(tt.want, got.Object["spec"]); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// An object that was converted has the defaults of the version it came from;
// any mutation, even one that does nothing, adds those of the matched version.
func TestDefaultsOfMatchedVersion(t *testing.T) {
	crd := strings.NewReplacer(
		`"name": "v1", "served": true, "storage": true`, `"name": "v2", "served": true, "storage": false`,
		`"n": {"type": "integer"}`, `"n": {"type": "integer", "default": 7}`,
	).Replace(widgetCRD)
	both := object(t, widgetCRD)
	versions := both["spec"].(map[string]any)
	versions["versions"] = append(versions["versions"].([]any), object(t, crd)["spec"].(map[string]any)["versions"].([]any)...)
	crds, err := openapi.CRDs(&unstructured.Unstructured{Object: both})
	if err != nil {
		t.Fatal(err)
	}
	deps := testDeps(t)
	deps.Types = openapi.New(crds)
	for _, m := range []admissionregistrationv1.Mutation{
		applyMutation(`Object{}`),
		applyMutation(`Object{metadata: Object.metadata{labels: {"a": "b"}}}`),
		jsonMutation(`[JSONPatch{op: "test", path: "/spec", value: 1}]`),
		jsonMutation(`[JSONPatch{op: "add", path: "/metadata/labels", value: {"a": "b"}}]`),
	} {
		in := newInput(object(t, widget+`{}}`))
		in.Kind.Version = "v2"
		in.Object = &unstructured.Unstructured{Object: object(t, strings.Replace(widget, "ex.io/v1", "ex.io/v2", 1)+`{}}`)}
		got, errs := run(compiled(t, deps, newPolicy(m)), in)
		if errs != nil {
			t.Fatal(errs)
		}
		if diff := cmp.Diff(map[string]any{"n": int64(7)}, got.Object["spec"]); diff != "" {
			t.Errorf("%v: -want +got\n%s", m, diff)
		}
	}
}
