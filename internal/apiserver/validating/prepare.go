package validating

import (
	"fmt"
	"reflect"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/policy"
)

// appArmorAnnotation is the prefix of an annotation's key, before the name of a container.
const appArmorAnnotation = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix

// prepare returns a Pod that is created as validation sees it: a server copies the
// deprecated annotations for AppArmor into the fields of the containers before, and warns
// of them (k8s.io/kubernetes/pkg/registry/core/pod/strategy.go: applyAppArmorVersionSkew).
// Other objects are returned as they are.
func prepare(req *policy.Request, object *unstructured.Unstructured) (*unstructured.Unstructured, []Violation) {
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	if req.Resource != pods || req.SubResource != "" || operation(req) != admissionv1.Create || object == nil {
		return object, nil
	}
	annotations := object.GetAnnotations()
	there := false
	for key := range annotations {
		there = there || strings.HasPrefix(key, appArmorAnnotation)
	}
	if !there {
		return object, nil
	}
	object = object.DeepCopy()
	if os, _, _ := unstructured.NestedString(object.Object, "spec", "os", "name"); os == string(corev1.Windows) {
		return object, nil
	}
	ofPod, _, _ := unstructured.NestedMap(object.Object, "spec", "securityContext", "appArmorProfile")
	var warnings []Violation
	for _, field := range []string{"initContainers", "containers", "ephemeralContainers"} {
		spec, _ := object.Object["spec"].(map[string]any)
		list, _ := spec[field].([]any)
		for _, item := range list {
			container, _ := item.(map[string]any)
			name, _ := container["name"].(string)
			key := appArmorAnnotation + name
			annotation, annotated := annotations[key]
			if _, there, _ := unstructured.NestedMap(container, "securityContext", "appArmorProfile"); !annotated || there {
				continue
			}
			profile := appArmorProfile(annotation)
			if profile != nil {
				if reflect.DeepEqual(profile, ofPod) {
					continue
				}
				_ = unstructured.SetNestedMap(container, profile, "securityContext", "appArmorProfile") // the object has its kind's types
			}
			warnings = append(warnings, Violation{
				Source: Server, Action: admissionregistrationv1.Warn,
				Message: fmt.Sprintf(`metadata.annotations[%s]: deprecated since v1.30; use the "appArmorProfile" field instead`, key),
			})
		}
	}
	return object, warnings
}

// appArmorProfile returns the profile that an annotation stands for, nil if it is not valid.
func appArmorProfile(annotation string) map[string]any {
	const longest = 4095
	name, local := strings.CutPrefix(annotation, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch {
	case annotation == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return map[string]any{"type": string(corev1.AppArmorProfileTypeUnconfined)}
	case annotation == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return map[string]any{"type": string(corev1.AppArmorProfileTypeRuntimeDefault)}
	case local && name != "" && strings.TrimSpace(name) == name && len(name) <= longest:
		return map[string]any{"type": string(corev1.AppArmorProfileTypeLocalhost), "localhostProfile": name}
	}
	return nil
}
