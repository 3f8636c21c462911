package webhook

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// marshal writes what encode does, by way of the type.
func (r *response) marshal(t testing.TB) string {
	out := &admissionv1.AdmissionResponse{UID: r.uid, Allowed: r.allowed, Result: r.status, Patch: r.patch, Warnings: r.warnings}
	if len(r.patch) > 0 {
		out.PatchType = new(admissionv1.PatchTypeJSONPatch)
	}
	for _, a := range r.annotations {
		if a.value != "" {
			if out.AuditAnnotations == nil {
				out.AuditAnnotations = map[string]string{}
			}
			out.AuditAnnotations[a.key] = a.value
		}
	}
	return string(mustJSON(t, &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Response: out,
	}))
}

// FuzzResponse compares with json.Marshal, to the byte.
func FuzzResponse(f *testing.F) {
	f.Add("u1", true, "", int32(0), "", "", "", "", "")
	f.Add("u1", true, "", int32(0), `[{"op":"remove","path":"/a"}]`, "", "", "labels/all: /metadata/labels", "")
	f.Add("u1", false, `policy "p" denied <this> & that`, int32(403), "", "p/b", "q/b", "r/b: /é", "w")
	f.Add("\xff\u2028", true, "\x00", int32(-1), "\xff", "<", "\x7f", "\\", "\"")
	f.Fuzz(func(t *testing.T, uid string, allowed bool, message string, code int32, patch, failed, ignored, mutated, warning string) {
		r := response{uid: types.UID(uid), allowed: allowed, patch: []byte(patch), annotations: annotations{
			{annotationFailed, failed}, {annotationIgnored, ignored}, {annotationMutatedBy, mutated},
		}}
		if message != "" {
			r.status = failure(int(code), message)
		}
		for n := range 3 {
			got, err := r.encode()
			if want := r.marshal(t); err != nil || string(got) != want {
				t.Errorf("%d warnings: encode = %s, %v; want %s", n, got, err, want)
			}
			if !json.Valid(got) {
				t.Errorf("%s is not JSON", got)
			}
			r.warnings = append(r.warnings, warning)
		}
	})
}

// TestManyLabels: an answer of many labels is one operation, and is not sent in
// chunks.
func TestManyLabels(t *testing.T) {
	h := NewHandler(Options{Admitter: labelEngine(t, `[JSONPatch{op: "add", path: "/metadata/labels/l%d", value: "v"}]`, 50)})
	r := run(t, h, nil, nil)
	review := `{"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": "u1", "operation": "CREATE",
		"kind": {"version": "v1", "kind": "Pod"}, "resource": {"version": "v1", "resource": "pods"}, "namespace": "default",
		"object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}}, "spec": {"containers": []}}}}`
	resp, body := r.do(t, "POST", "/mutate", "application/json", strings.NewReader(review))
	if resp.ContentLength != int64(len(body)) || len(body) < 2048 {
		t.Errorf("content length %d of %d bytes", resp.ContentLength, len(body))
	}
	want := map[string]string{"app": "web"}
	for i := range 50 {
		want[fmt.Sprint("l", i)] = "v"
	}
	patch := fmt.Sprintf(`[{"op":"replace","path":"/metadata/labels","value":%s}]`, mustJSON(t, want))
	if got := string(decodeResponse(t, []byte(body)).Patch); got != patch {
		t.Errorf("patch %s, want %s", got, patch)
	}
}
