package audit

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// podResource is the resource of Pods.
var podResource = Resource{
	GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, GVK: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespaced: true,
}

// notOfTemplate are the fields of a Pod's metadata that podOf adds.
var notOfTemplate = []string{"namespace", "generateName"}

// podOf returns the Pod that the template of a workload makes, without a name and an owner.
func podOf(workload *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	template, _ := field(workload.Object, "spec", "template").(map[string]any)
	spec, _ := template["spec"].(map[string]any)
	if spec == nil {
		return nil, fmt.Errorf("%s has no template of Pods", newResult(workload).Title())
	}
	meta := map[string]any{}
	if of, ok := template["metadata"].(map[string]any); ok {
		maps.Copy(meta, of)
	}
	meta["namespace"], meta["generateName"] = workload.GetNamespace(), workload.GetName()+"-"
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}}, nil
}

// withTemplate returns a workload whose template makes a Pod.
func withTemplate(workload, pod *unstructured.Unstructured) *unstructured.Unstructured {
	was, _ := field(workload.Object, "spec").(map[string]any)
	old, _ := was["template"].(map[string]any)
	template, spec, out := maps.Clone(old), maps.Clone(was), maps.Clone(workload.Object)
	meta, _ := pod.Object["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	for _, name := range notOfTemplate {
		delete(meta, name)
	}
	template["metadata"], template["spec"] = meta, pod.Object["spec"]
	spec["template"], out["spec"] = template, spec
	return &unstructured.Unstructured{Object: out}
}
