package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestCELRequest compares the variable request with the JSON form of what
// upstream builds, which is what its expressions see.
func TestCELRequest(t *testing.T) {
	kind := schema.GroupVersionKind{Group: "g", Version: "v2", Kind: "K"}
	resource := schema.GroupVersionResource{Group: "g", Version: "v2", Resource: "ks"}
	full := Request{
		UID:         "not shown",
		RequestKind: schema.GroupVersionKind{Group: "g", Version: "v1", Kind: "K"}, RequestResource: schema.GroupVersionResource{Group: "g", Version: "v1", Resource: "ks"}, RequestSubResource: "status",
		SubResource: "status", Name: "n", Namespace: "ns", Operation: admissionv1.Update, DryRun: true,
		UserInfo: authenticationv1.UserInfo{Username: "u", UID: "1", Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"a", "b"}, "empty": {}}},
		Options:  map[string]any{"kind": "UpdateOptions", "dryRun": []any{"All"}},
	}
	bare := Request{Operation: admissionv1.Create, RequestKind: kind, RequestResource: resource}
	for name, r := range map[string]*Request{"full": &full, "bare": &bare} {
		t.Run(name, func(t *testing.T) {
			clientKind, clientResource := metav1.GroupVersionKind(r.RequestKind), metav1.GroupVersionResource(r.RequestResource)
			want, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&admissionv1.AdmissionRequest{
				Kind: metav1.GroupVersionKind(kind), Resource: metav1.GroupVersionResource(resource), SubResource: r.SubResource,
				RequestKind: &clientKind, RequestResource: &clientResource, RequestSubResource: r.RequestSubResource,
				Name: r.Name, Namespace: r.Namespace, Operation: r.Operation, UserInfo: r.UserInfo, DryRun: &r.DryRun,
			})
			if err != nil {
				t.Fatal(err)
			}
			if r.Options != nil {
				want["options"] = r.Options
			}
			if diff := cmp.Diff(want, r.celRequest(kind, resource)); diff != "" {
				t.Errorf("-upstream +celRequest\n%s", diff)
			}
			a, b := r.celRequest(kind, resource), r.celRequest(kind, resource)
			if a["kind"].(map[string]any)["mark"] = 1; b["kind"].(map[string]any)["mark"] != 1 {
				t.Error("the value is built twice")
			}
		})
	}
}
