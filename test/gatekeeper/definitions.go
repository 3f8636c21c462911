package gatekeeper

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/openapi"
)

// definitions are the kinds of random objects: Thing is namespaced and World is
// not. Below spec and status they may hold anything.
var definitions = []*unstructured.Unstructured{definition("Thing", "things", "Namespaced"), definition("World", "worlds", "Cluster")}

func definition(kind, plural, scope string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": plural + ".ex.io"},
		"spec": map[string]any{"group": "ex.io", "scope": scope,
			"names": map[string]any{"plural": plural, "kind": kind},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}}}
}

// types are the built-in kinds and those of random objects.
var types = func() *openapi.Types {
	crds, err := openapi.CRDs(definitions...)
	if err != nil {
		panic(err)
	}
	return openapi.New(crds, openapi.Builtin())
}()
