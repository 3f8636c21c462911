package snapshot

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/openapi"
)

// params are the objects that may be parameters, in every version in which a
// policy may name them. They do not change once the Snapshot is built.
type params struct {
	types   *openapi.Types
	objects map[schema.GroupVersionKind]map[string]map[string]*unstructured.Unstructured // namespace, name
}

func newParams(types *openapi.Types) *params {
	return &params{types: types, objects: map[schema.GroupVersionKind]map[string]map[string]*unstructured.Unstructured{}}
}

// add takes an object of a namespace ("" for a cluster-scoped kind) that a server
// would accept; others can be no parameter. An object of an unknown kind is none
// either: the policy that names the kind fails.
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
		// As typed informers hold them (spec §3.2).
		delete(obj, "apiVersion")
		delete(obj, "kind")
		delete(meta, "managedFields")
		p.put(gvk, namespace, u.GetName(), obj)
		return nil
	}
	p.put(gvk, namespace, u.GetName(), obj)
	for _, other := range p.types.Equivalents(res.GVR) {
		if kind.ConvertibleTo(other.Kind) {
			c := maps.Clone(obj)
			c["apiVersion"] = other.Kind.GroupVersion().String()
			p.put(other.Kind, namespace, u.GetName(), c)
		}
	}
	return nil
}

func (p *params) put(gvk schema.GroupVersionKind, namespace, name string, obj map[string]any) {
	if p.objects[gvk] == nil {
		p.objects[gvk] = map[string]map[string]*unstructured.Unstructured{}
	}
	if p.objects[gvk][namespace] == nil {
		p.objects[gvk][namespace] = map[string]*unstructured.Unstructured{}
	}
	p.objects[gvk][namespace][name] = &unstructured.Unstructured{Object: obj}
}

// Kind implements binding.Params.
func (p *params) Kind(gvk schema.GroupVersionKind) (namespaced bool, err error) {
	res, ok := p.types.ResourceFor(gvk)
	if !ok {
		return false, fmt.Errorf("no matches for kind %q in version %q", gvk.Kind, gvk.GroupVersion())
	}
	return res.Namespaced, nil
}

// Get implements binding.Params.
func (p *params) Get(_ context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	if u, ok := p.objects[gvk][namespace][name]; ok {
		return u, nil
	}
	res, _ := p.types.ResourceFor(gvk)
	return nil, apierrors.NewNotFound(res.GVR.GroupResource(), name)
}

// List implements binding.Params.
func (p *params) List(_ context.Context, gvk schema.GroupVersionKind, namespace string, sel labels.Selector) ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	for _, u := range p.objects[gvk][namespace] {
		if sel.Matches(labels.Set(u.GetLabels())) {
			found = append(found, u)
		}
	}
	return found, nil
}
