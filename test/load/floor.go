package load

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
)

// Floors are minimal webhooks, written by hand with the types of Kubernetes and encoding/json. The
// costs of an engine are compared with theirs.
var Floors = map[string]http.Handler{
	"allow": floor(func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse) error { return nil }),
	"patch": floor(label),
}

// FloorLabel is the label that the floor "patch" adds to a Pod.
const FloorLabel = "floor"

// floor returns a handler that decodes a review, calls admit, and encodes the answer.
func floor(admit func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 7<<20))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		var review admissionv1.AdmissionReview
		if err := json.Unmarshal(body, &review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if review.Request == nil {
			http.Error(w, "no request", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if err := admit(review.Request, review.Response); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Request = nil
		answer, err := json.Marshal(&review)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer) // the client may have closed the connection
	})
}

// label decodes a Pod, adds a label and encodes it again, as a webhook does that computes its patch
// by comparing the two. It does not compare them, because the time for that depends on the library;
// it writes the patch directly.
func label(request *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse) error {
	var pod corev1.Pod
	if err := json.Unmarshal(request.Object.Raw, &pod); err != nil {
		return err
	}
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	patch := []operation{{"add", "/metadata/labels/" + FloorLabel, "v"}}
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
		patch = []operation{{"add", "/metadata/labels", map[string]string{FloorLabel: "v"}}}
	}
	pod.Labels[FloorLabel] = "v"
	if _, err := json.Marshal(&pod); err != nil {
		return err
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	response.Patch = data
	response.PatchType = new(admissionv1.PatchTypeJSONPatch)
	return nil
}
