package load

import (
	"bytes"
	"encoding/json"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Review is an AdmissionReview that can be sent many times, each time with another
// UID, as an API server does.
type Review struct {
	before, after []byte // the bytes before and after the UID
}

// uid returns the n-th UID.
func uid(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012x", n) }

// ParseReview returns a Review that sends these bytes, an AdmissionReview in JSON, with other UIDs.
func ParseReview(data []byte) (*Review, error) {
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(data, &review); err != nil {
		return nil, fmt.Errorf("review: %w", err)
	}
	if review.Request == nil || review.Request.UID == "" {
		return nil, fmt.Errorf("review: it has no request with a uid")
	}
	// These characters may occur in several places. The UID is at the one where changing them
	// changes the decoded UID.
	old := []byte(review.Request.UID)
	for i := 0; ; {
		at := bytes.Index(data[i:], old)
		if at < 0 {
			return nil, fmt.Errorf("review: the uid %q is written in another way", old)
		}
		i += at
		r := &Review{before: data[:i], after: data[i+len(old):]}
		body, want := r.next(nil, 1)
		var changed admissionv1.AdmissionReview
		if err := json.Unmarshal(body, &changed); err == nil && changed.Request != nil && string(changed.Request.UID) == want {
			return r, nil
		}
		i++
	}
}

// PodReview returns the review of the creation of a Pod.
func PodReview(pod map[string]any) (*Review, error) {
	object, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	meta, _ := pod["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	namespace, _ := meta["namespace"].(string)
	kind := metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}
	resource := metav1.GroupVersionResource{Version: "v1", Resource: "pods"}
	data, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: types.UID(uid(0)), Kind: kind, Resource: resource, RequestKind: &kind, RequestResource: &resource,
			Name: name, Namespace: namespace, Operation: admissionv1.Create,
			UserInfo: authenticationv1.UserInfo{Username: "alice", Groups: []string{"developers", "system:authenticated"}},
			Object:   runtime.RawExtension{Raw: object}, DryRun: new(false),
			Options: runtime.RawExtension{Raw: []byte(`{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"kubectl-create","fieldValidation":"Strict"}`)},
		},
	})
	if err != nil {
		return nil, err
	}
	return ParseReview(data)
}

// Body returns the body of the review, with one UID.
func (r *Review) Body() []byte {
	body, _ := r.next(nil, 0)
	return body
}

// next returns the body with the n-th UID. It reuses the memory of into if that is large enough.
func (r *Review) next(into []byte, n int) (body []byte, id string) {
	id = uid(n)
	body = append(into[:0], r.before...)
	body = append(body, id...)
	return append(body, r.after...), id
}
