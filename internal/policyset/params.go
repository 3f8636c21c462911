package policyset

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// params are the objects that may be parameters, in every version in which a policy may name
// their kind. They do not change after the Snapshot was built.
type params struct {
	*binding.MemoryParams
	types *openapi.Types
}

func newParams(types *openapi.Types) *params {
	return &params{binding.NewMemoryParams(Kinds(types)), types}
}

// add adds an object of a namespace ("" for a cluster-scoped kind) if a server would accept it;
// other objects cannot be parameters. An object of an unknown kind is not added either: the
// policy that names the kind fails.
func (p *params) add(u *unstructured.Unstructured, namespace string) error {
	gvk := u.GroupVersionKind()
	res, ok := p.types.ResourceFor(gvk)
	if !ok {
		return nil
	}
	kind, err := p.types.Kind(gvk)
	if err != nil {
		return nil
	}
	obj, err := kind.Normalize(u.Object)
	if err != nil {
		return err
	}
	meta, _ := obj["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	if meta == nil {
		meta = map[string]any{}
	}
	delete(meta, "namespace")
	if namespace != "" {
		meta["namespace"] = namespace
	}
	obj = maps.Clone(obj)
	obj["metadata"] = meta
	if kind.Builtin() {
		// Objects of typed informers have no apiVersion and kind (spec §3.2).
		delete(obj, "apiVersion")
		delete(obj, "kind")
		delete(meta, "managedFields")
		p.put(gvk, obj)
		return nil
	}
	p.put(gvk, obj)
	for _, other := range p.types.Equivalents(res.GVR) {
		if kind.ConvertibleTo(other.Kind) {
			c := maps.Clone(obj)
			c["apiVersion"] = other.Kind.GroupVersion().String()
			p.put(other.Kind, c)
		}
	}
	return nil
}

func (p *params) put(gvk schema.GroupVersionKind, obj map[string]any) {
	p.Put(gvk, &unstructured.Unstructured{Object: obj})
}

// Kinds answers for binding.NewMemoryParams from types.
func Kinds(types *openapi.Types) func(schema.GroupVersionKind) (namespaced bool, err error) {
	return func(gvk schema.GroupVersionKind) (bool, error) {
		res, ok := types.ResourceFor(gvk)
		if !ok {
			return false, fmt.Errorf("no matches for kind %q in version %q", gvk.Kind, gvk.GroupVersion())
		}
		return res.Namespaced, nil
	}
}
