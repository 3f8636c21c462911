package binding

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MemoryParams are parameters in memory, for programs that have no cluster. Once
// an Index uses them, they must not be modified.
type MemoryParams struct {
	kinds   func(schema.GroupVersionKind) (namespaced bool, err error)
	objects map[schema.GroupVersionKind]map[string]map[string]*unstructured.Unstructured // by namespace and name
}

// NewMemoryParams returns MemoryParams without any object. kinds is [Params.Kind].
func NewMemoryParams(kinds func(schema.GroupVersionKind) (namespaced bool, err error)) *MemoryParams {
	return &MemoryParams{kinds, map[schema.GroupVersionKind]map[string]map[string]*unstructured.Unstructured{}}
}

// Put adds an object of a kind, as policies are to see it.
func (p *MemoryParams) Put(gvk schema.GroupVersionKind, u *unstructured.Unstructured) {
	byNamespace := p.objects[gvk]
	if byNamespace == nil {
		byNamespace = map[string]map[string]*unstructured.Unstructured{}
		p.objects[gvk] = byNamespace
	}
	namespace := u.GetNamespace()
	if byNamespace[namespace] == nil {
		byNamespace[namespace] = map[string]*unstructured.Unstructured{}
	}
	byNamespace[namespace][u.GetName()] = u
}

// Kind implements Params.
func (p *MemoryParams) Kind(gvk schema.GroupVersionKind) (namespaced bool, err error) {
	return p.kinds(gvk)
}

// Get implements Params.
func (p *MemoryParams) Get(_ context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	if u, ok := p.objects[gvk][namespace][name]; ok {
		return u, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, name)
}

// List implements Params.
func (p *MemoryParams) List(_ context.Context, gvk schema.GroupVersionKind, namespace string, sel labels.Selector) ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	for in, objects := range p.objects[gvk] {
		if namespace != "" && in != namespace {
			continue
		}
		for _, u := range objects {
			if sel.Matches(labels.Set(u.GetLabels())) {
				found = append(found, u)
			}
		}
	}
	return found, nil
}

// MemoryNamespaces are Namespaces in memory, by name.
type MemoryNamespaces map[string]*unstructured.Unstructured

// Namespace implements Namespaces.
func (n MemoryNamespaces) Namespace(_ context.Context, name string) (*unstructured.Unstructured, error) {
	if u := n[name]; u != nil {
		return u, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
}
