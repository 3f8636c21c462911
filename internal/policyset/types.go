package policyset

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// Convert returns a function for engine.Options that converts without a server: it changes the
// apiVersion of a custom resource if its definition says that no other conversion is needed.
func Convert(types *openapi.Types) func(*unstructured.Unstructured, schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	return func(obj *unstructured.Unstructured, to schema.GroupVersionKind) (*unstructured.Unstructured, error) {
		from := obj.GroupVersionKind()
		for _, pair := range [][2]schema.GroupVersionKind{{from, to}, {to, from}} {
			// One of them may be a version that is not served, of which nothing is
			// known but its name.
			if kind, err := types.Kind(pair[0]); err == nil && kind.ConvertibleTo(pair[1]) {
				return engine.WithVersion(obj, to), nil
			}
		}
		return nil, engine.ErrNoConversion
	}
}

// Equivalents answers for binding.Sources from types.
func Equivalents(types *openapi.Types) func(schema.GroupVersionResource) []binding.Equivalent {
	return func(gvr schema.GroupVersionResource) []binding.Equivalent {
		var out []binding.Equivalent
		for _, r := range types.Equivalents(gvr) {
			out = append(out, binding.Equivalent{Resource: r.GVR, Kind: r.Kind})
		}
		return out
	}
}
