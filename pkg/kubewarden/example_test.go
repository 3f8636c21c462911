package kubewarden_test

import (
	"fmt"

	"github.com/mapd-project/mapd/pkg/kubewarden"
)

func Example() {
	p, err := kubewarden.Decode([]byte(`{
		"apiVersion": "policies.kubewarden.io/v1", "kind": "AdmissionPolicy", "metadata": {"name": "drop-bpf", "namespace": "shop"},
		"spec": {"module": "ghcr.io/example/drop:v1", "mutating": true, "settings": {"drop": ["BPF"]},
			"rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]}}`), "")
	if err != nil {
		panic(err)
	}
	fmt.Println(p.ID(), p.Module.Scheme, p.Module.Location, p.Settings)
	fmt.Println(p.Object().Spec.MatchConstraints.NamespaceSelector.MatchLabels)

	_, err = kubewarden.Decode([]byte(`{"apiVersion": "policies.kubewarden.io/v1", "kind": "ClusterAdmissionPolicy", "metadata": {"name": "drop-bpf"},
		"spec": {"module": "http://example.com/drop.wasm", "mutating": true,
			"rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}]}}`), "")
	fmt.Println(err)
	// Output:
	// namespaced-shop-drop-bpf registry ghcr.io/example/drop:v1 map[drop:[BPF]]
	// map[kubernetes.io/metadata.name:shop]
	// spec.module: Invalid value: "http://example.com/drop.wasm": http:// is not supported, since anybody on the way can replace the module; use https:// or registry://
}
