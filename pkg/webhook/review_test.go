package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	jsonpatchv5 "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	jsonpatchv4 "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// reviewOf returns a review whose request has the given fields beside those
// that every request has.
func reviewOf(fields string) string {
	if fields != "" {
		fields = ", " + fields
	}
	return `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u1",
		"kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
		"resource": {"group": "apps", "version": "v1", "resource": "deployments"}, "operation": "CREATE"` + fields + `}}`
}

func TestDecodeReview(t *testing.T) {
	data := reviewOf(`"subResource": "scale",
		"requestKind": {"group": "extensions", "version": "v1beta1", "kind": "Deployment"},
		"requestResource": {"group": "extensions", "version": "v1beta1", "resource": "deployments"},
		"requestSubResource": "scale", "name": "web", "namespace": "shop", "dryRun": true,
		"userInfo": {"username": "ann", "uid": "7", "groups": ["dev"], "extra": {"k": ["v"]}},
		"object": {"replicas": 3, "ratio": 3.0, "big": 9007199254740993}, "oldObject": {"a": null},
		"options": {"kind": "CreateOptions"}, "somethingNew": 1`)
	got, err := DecodeReview([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	check := func(field string, got, want any) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", field, diff)
		}
	}
	check("uid", string(got.UID), "u1")
	check("kind", got.Kind, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"})
	check("resource", got.Resource, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"})
	check("subResource", got.SubResource, "scale")
	check("requestKind", got.RequestKind, schema.GroupVersionKind{Group: "extensions", Version: "v1beta1", Kind: "Deployment"})
	check("requestResource", got.RequestResource, schema.GroupVersionResource{Group: "extensions", Version: "v1beta1", Resource: "deployments"})
	check("requestSubResource", got.RequestSubResource, "scale")
	check("name", got.Namespace+"/"+got.Name, "shop/web")
	check("operation", got.Operation, admissionv1.Create)
	check("dryRun", got.DryRun, true)
	check("userInfo", got.UserInfo, authenticationv1.UserInfo{Username: "ann", UID: "7", Groups: []string{"dev"},
		Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}}})
	check("object", got.Object.Object, map[string]any{"replicas": int64(3), "ratio": 3.0, "big": int64(9007199254740993)})
	check("oldObject", got.OldObject.Object, map[string]any{"a": nil})
	check("options", got.Options, map[string]any{"kind": "CreateOptions"})
}

func TestDecodeReviewDefaults(t *testing.T) {
	got, err := DecodeReview([]byte(reviewOf(`"subResource": "status", "object": null`)))
	if err != nil {
		t.Fatal(err)
	}
	if got.RequestKind != got.Kind || got.RequestResource != got.Resource || got.RequestSubResource != "status" {
		t.Errorf("request fields are %v, %v, %q; want those of the object", got.RequestKind, got.RequestResource, got.RequestSubResource)
	}
	if got.Object != nil || got.OldObject != nil || got.Options != nil || got.DryRun {
		t.Errorf("object %v, oldObject %v, options %v, dryRun %t; want none", got.Object, got.OldObject, got.Options, got.DryRun)
	}
}

var badReviews = map[string]struct{ in, err string }{
	"nothing":            {in: ``, err: `malformed AdmissionReview: offset 0: unexpected end of JSON input`},
	"not JSON":           {in: `apiVersion: v1`, err: `malformed AdmissionReview: offset 1: invalid character 'a' looking for beginning of value`},
	"a list":             {in: `[]`, err: `malformed AdmissionReview: the review: unexpected array`},
	"two documents":      {in: `{} {}`, err: `malformed AdmissionReview: offset 4: invalid character '{' after top-level value`},
	"null":               {in: `null`, err: `want kind AdmissionReview of apiVersion admission.k8s.io/v1, got kind "" of apiVersion ""`},
	"another version":    {in: `{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {"uid": "1"}}`, err: `want kind AdmissionReview of apiVersion admission.k8s.io/v1, got kind "AdmissionReview" of apiVersion "admission.k8s.io/v1beta1"`},
	"another kind":       {in: `{"apiVersion": "admission.k8s.io/v1", "kind": "ConversionReview"}`, err: `want kind AdmissionReview of apiVersion admission.k8s.io/v1, got kind "ConversionReview" of apiVersion "admission.k8s.io/v1"`},
	"a response":         {in: `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": "1"}}`, err: `the review has no request`},
	"no uid":             {in: `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {}}`, err: `request.uid is missing`},
	"no kind":            {in: `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1"}}`, err: `request.kind needs a version and a kind`},
	"no resource":        {in: `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "kind": {"version": "v1", "kind": "Pod"}}}`, err: `request.resource needs a version and a resource`},
	"no operation":       {in: `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1", "kind": {"version": "v1", "kind": "Pod"}, "resource": {"version": "v1", "resource": "pods"}}}`, err: `request.operation is "", want CREATE, UPDATE, DELETE or CONNECT`},
	"a wrong type":       {in: reviewOf(`"name": 1`), err: `malformed AdmissionReview: request.name: unexpected number`},
	"a number too large": {in: reviewOf(`"object": {"data": 4711e999}`), err: `malformed AdmissionReview: request.object: a number is out of range`},
	"object a list":      {in: reviewOf(`"object": []`), err: `request.object is neither an object nor null`},
	"old a string":       {in: reviewOf(`"oldObject": ""`), err: `request.oldObject is neither an object nor null`},
	"options a bool":     {in: reviewOf(`"options": true`), err: `request.options is neither an object nor null`},
}

func TestDecodeReviewRefuses(t *testing.T) {
	for name, tt := range badReviews {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeReview([]byte(tt.in))
			var bad *ReviewError
			if !errors.As(err, &bad) || bad.Code != http.StatusBadRequest || err.Error() != tt.err {
				t.Errorf("DecodeReview(%s) error = %q, want a 400 %q", tt.in, err, tt.err)
			}
		})
	}
}

func FuzzDecodeReview(f *testing.F) {
	f.Add([]byte(reviewOf(`"object": {"a": [1, null, {"b": 1.5}]}, "dryRun": false`)))
	for _, tt := range badReviews {
		f.Add([]byte(tt.in))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		req, err := DecodeReview(data)
		if err != nil {
			var bad *ReviewError
			if !errors.As(err, &bad) || bad.Reason == "" {
				t.Fatalf("DecodeReview(%q) error = %v, want a reason", data, err)
			}
			return
		}
		body, err := EncodeResponse(req, &engine.Decision{Object: req.Object})
		if err != nil {
			t.Fatalf("EncodeResponse of %q: %v", data, err)
		}
		if r := decodeResponse(t, body); r.UID == "" || !r.Allowed || r.Patch != nil {
			t.Errorf("EncodeResponse of %q = %s, want an allowed request without a patch", data, body)
		}
	})
}

func TestEncodeResponse(t *testing.T) {
	denied := &metav1.Status{Status: "Failure", Code: 403, Reason: "Invalid", Message: "policy 'p' with binding 'b' denied request: no",
		Details: &metav1.StatusDetails{Name: "web", Causes: []metav1.StatusCause{{Message: "no"}}}}
	jsonPatch := admissionv1.PatchTypeJSONPatch
	before := obj(t, `{"metadata": {"name": "web", "annotations": null}, "spec": {"containers": [{"name": "app", "image": "a"}]}}`)
	after := obj(t, `{"metadata": {"name": "web", "annotations": {"x/y": "1"}, "labels": {"a": "b"}}, "spec": {"containers": [{"name": "mesh"}, {"name": "app", "image": "b"}]}}`)
	labelled := obj(t, `{"metadata": {"name": "web", "annotations": null, "labels": {"a": "b"}}, "spec": {"containers": [{"name": "app", "image": "a"}]}}`)
	tests := map[string]struct {
		object   *unstructured.Unstructured
		decision engine.Decision
		want     admissionv1.AdmissionResponse
		patch    string
	}{
		"nothing changed": {
			object: before, decision: engine.Decision{Object: before},
			want: admissionv1.AdmissionResponse{UID: "u1", Allowed: true},
		},
		"an equal object": {
			object: before, decision: engine.Decision{Object: obj(t, `{"metadata": {"name": "web", "annotations": null}, "spec": {"containers": [{"name": "app", "image": "a"}]}}`)},
			want: admissionv1.AdmissionResponse{UID: "u1", Allowed: true},
		},
		"no object": {want: admissionv1.AdmissionResponse{UID: "u1", Allowed: true}},
		"a patch": {
			object: before,
			decision: engine.Decision{Object: after, Changed: true, Warnings: []string{"w"}, Steps: []engine.Step{
				{Policy: "labels", Binding: "all", Outcome: engine.Changed, Before: before, After: labelled},
				{Policy: "other", Binding: "all", Outcome: engine.Unchanged, Before: labelled, After: labelled},
				{Policy: "broken", Mutation: -1, Outcome: engine.Failed, Ignored: true, Err: errors.New("secret")},
				{Policy: "mesh", Binding: "shop", Outcome: engine.Changed, Before: labelled, After: after},
				{Policy: "labels", Binding: "all", Mutation: 1, Outcome: engine.Changed, Before: before, After: labelled},
			}},
			want: admissionv1.AdmissionResponse{UID: "u1", Allowed: true, Warnings: []string{"w"}, PatchType: &jsonPatch,
				AuditAnnotations: map[string]string{
					"mutated-by":       "labels/all: /metadata/labels; mesh/shop: /metadata/annotations, /spec/containers/0, /spec/containers/1/image",
					"ignored-failures": "broken",
				}},
			patch: `[{"op":"replace","path":"/metadata/annotations","value":{"x/y":"1"}},{"op":"add","path":"/metadata/labels","value":{"a":"b"}},` +
				`{"op":"add","path":"/spec/containers/0","value":{"name":"mesh"}},{"op":"replace","path":"/spec/containers/1/image","value":"b"}]`,
		},
		"a denial": {
			object: before,
			decision: engine.Decision{Object: before, Status: denied, Steps: []engine.Step{
				{Policy: "labels", Binding: "all", Outcome: engine.Changed, Before: before, After: labelled},
				{Policy: "p", Binding: "b", Outcome: engine.Failed, Err: errors.New("no")},
				{Policy: "p", Binding: "b", Outcome: engine.Failed, Err: errors.New("no")},
			}},
			want: admissionv1.AdmissionResponse{UID: "u1", Result: denied, AuditAnnotations: map[string]string{"failed-policies": "p/b"}},
		},
		"an object out of nothing": {
			decision: engine.Decision{Object: after, Changed: true},
			want: admissionv1.AdmissionResponse{UID: "u1", Result: &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
				Status: "Failure", Code: 500, Reason: "InternalError", Message: "mapd: an object cannot be patched into being or away"}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			body, err := EncodeResponse(&policy.Request{UID: "u1", Object: tt.object}, &tt.decision)
			if err != nil {
				t.Fatal(err)
			}
			got := decodeResponse(t, body)
			patch := got.Patch
			got.Patch = nil
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("response (-want +got):\n%s", diff)
			}
			if string(patch) != tt.patch {
				t.Errorf("patch = %s, want %s", patch, tt.patch)
			}
			if patch != nil {
				checkPatch(t, patch, tt.object.Object, tt.decision.Object.Object)
			}
		})
	}
}

func TestEncodeResponseOfWhatJSONCannotSay(t *testing.T) {
	before := obj(t, `{}`)
	after := &unstructured.Unstructured{Object: map[string]any{"x": math.Inf(1)}}
	if body, err := EncodeResponse(&policy.Request{UID: "u1", Object: before}, &engine.Decision{Object: after, Changed: true}); err == nil {
		t.Errorf("EncodeResponse = %s, want an error", body)
	}
}

func TestVerify(t *testing.T) {
	before, after := map[string]any{"a": "1"}, map[string]any{"a": "2"}
	tests := map[string]struct {
		ops []tree.Op
		err string
	}{
		"right":   {ops: []tree.Op{{Op: "replace", Path: "/a", Value: "2"}}},
		"wrong":   {ops: []tree.Op{{Op: "replace", Path: "/a", Value: "3"}}, err: "the patch does not give the object that was decided"},
		"nothing": {err: "the patch does not give the object that was decided"},
		"broken":  {ops: []tree.Op{{Op: "remove", Path: "/b"}}, err: `the patch does not give the object that was decided: operation 0, remove "/b": no field "b"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := verify(before, after, tt.ops)
			if msg := errString(err); msg != tt.err {
				t.Errorf("verify(%v) = %q, want %q", tt.ops, msg, tt.err)
			}
		})
	}
}

func TestAnnotationsAreBounded(t *testing.T) {
	before := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{}}}
	data := map[string]any{"ä" + strings.Repeat("é", 1000): "v"}
	for i := range 2000 {
		data[fmt.Sprintf("key-%04d", i)] = "v"
	}
	after := &unstructured.Unstructured{Object: map[string]any{"data": data}}
	d := &engine.Decision{Object: after, Changed: true}
	for i := range 500 {
		d.Steps = append(d.Steps, engine.Step{Policy: fmt.Sprintf("policy-%03d", i), Binding: "b", Outcome: engine.Changed, Before: before, After: after})
	}
	d.Steps = append(d.Steps, engine.Step{Policy: strings.Repeat("p", 5000), Outcome: engine.Failed, Ignored: true})
	annotations := func() map[string]string {
		did := actsOf(d.Steps, d.Changed)
		out := map[string]string{}
		for _, a := range did.annotations(&acts{}) {
			if a.value != "" {
				out[a.key] = a.value
			}
		}
		return out
	}
	got := annotations()
	for key, value := range got {
		if len(validation.IsQualifiedName("mapd.example.com/"+key)) > 0 {
			t.Errorf("key %q does not make a qualified name", key)
		}
		if len(value) > maxAnnotation {
			t.Errorf("%s has %d bytes, want at most %d", key, len(value), maxAnnotation)
		}
	}
	mutated := got[annotationMutatedBy]
	if want := "policy-000/b: /data/key-0000, "; !strings.HasPrefix(mutated, want) {
		t.Errorf("mutated-by = %.80q…, want it to begin with %q", mutated, want)
	}
	if want := "; and 499 more"; !strings.HasSuffix(mutated, want) {
		t.Errorf("mutated-by = …%q, want it to end with %q", mutated[len(mutated)-80:], want)
	}
	long := string((&actor{actorName: actorName{"p", "b"}, paths: []string{"/" + strings.Repeat("é", 1000)}}).append(nil))
	if want := len("p/b: ") + maxPath; len(long) > want || !strings.HasSuffix(long, "é…") {
		t.Errorf("a long path became %q", long)
	}
	if again := annotations(); !cmp.Equal(again, got) {
		t.Error("annotations are not deterministic")
	}
}

// TestActors finds few and many actors, in rounds that repeat their order, skip
// some of them, and do neither.
func TestActors(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		n    int
		name string // p%03d keeps the order of names
	}{{1, "p%d"}, {2, "p%d"}, {manyActors - 1, "p%d"}, {manyActors - 1, "p%03d"}, {manyActors, "p%d"}, {manyActors + 1, "p%d"}, {200, "p%d"}, {200, "p%03d"}} {
		n := c.n
		var names, want []actorName
		seen := map[actorName]bool{}
		for round := range 3 {
			for i := range n {
				if round == 0 || random.IntN(4) > 0 {
					names = append(names, actorName{fmt.Sprintf(c.name, i), fmt.Sprint("b", i%3)})
				}
			}
		}
		for range n {
			names = append(names, names[random.IntN(len(names))])
		}
		var a actors
		for _, name := range names {
			if !seen[name] {
				seen[name] = true
				want = append(want, name)
			}
			a.add(&engine.Step{Policy: name.policy, Binding: name.binding}, nil)
			if i := a.find(name); a.list[i].actorName != name {
				t.Fatalf("%d actors: looking for %v finds %v", n, name, a.list[i].actorName)
			}
		}
		var got []actorName
		for _, x := range a.list {
			got = append(got, x.actorName)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d actors: list is %v, want %v", n, got, want)
		}
	}
}

// checkPatch applies a patch as API servers do and as their next version may.
func checkPatch(t *testing.T, patch []byte, before, after map[string]any) {
	t.Helper()
	doc := mustJSON(t, before)
	v4, err := jsonpatchv4.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	got4, err := v4.Apply(doc)
	if err != nil {
		t.Fatalf("v4: %v", err)
	}
	v5, err := jsonpatchv5.DecodePatch(patch)
	if err != nil {
		t.Fatal(err)
	}
	got5, err := v5.Apply(doc)
	if err != nil {
		t.Fatalf("v5: %v", err)
	}
	for who, got := range map[string][]byte{"v4": got4, "v5": got5} {
		m, err := tree.Decode(got)
		if err != nil || !tree.Equal(m, after) {
			t.Errorf("%s gives %s, want %s", who, got, mustJSON(t, after))
		}
	}
}

func decodeResponse(t *testing.T, body []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	var r admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatalf("response %s: %v", body, err)
	}
	if r.APIVersion != "admission.k8s.io/v1" || r.Kind != "AdmissionReview" || r.Response == nil {
		t.Fatalf("response %s is not an AdmissionReview v1", body)
	}
	return r.Response
}

func obj(t testing.TB, s string) *unstructured.Unstructured {
	t.Helper()
	m, err := tree.Decode([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: m}
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func errString(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
