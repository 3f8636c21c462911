package webhook

import (
	"encoding/json"
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
