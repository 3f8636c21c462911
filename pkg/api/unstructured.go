package api

import (
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object returns a policy or binding as it is sent to a server, in a group's
// version v1.
func Object[T admissionregistrationv1.MutatingAdmissionPolicy | admissionregistrationv1.MutatingAdmissionPolicyBinding](obj *T, group string) *unstructured.Unstructured {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		panic(err) // these types are plain
	}
	kind := PolicyKind
	if _, ok := any(obj).(*admissionregistrationv1.MutatingAdmissionPolicyBinding); ok {
		kind = BindingKind
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(group + "/v1")
	u.SetKind(kind)
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	return u
}
