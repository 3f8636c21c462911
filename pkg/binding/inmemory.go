package binding

import (
	"context"
	"maps"
	"slices"

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

// Put adds an object of a kind, in the form in which policies see it.
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

// StoredNamespace returns a Namespace with the fields that every server adds to a Namespace
// that it stores: the label with its name, a phase and the finalizer kubernetes. Existing
// fields of u are kept, and u is not modified.
func StoredNamespace(u *unstructured.Unstructured) *unstructured.Unstructured {
	obj := maps.Clone(u.Object)
	meta := cloneField(obj, "metadata")
	cloneField(meta, "labels")[namespaceNameLabel] = u.GetName()
	status := cloneField(obj, "status")
	if phase, _ := status["phase"].(string); phase == "" {
		status["phase"] = "Active"
		if meta["deletionTimestamp"] != nil {
			status["phase"] = "Terminating"
		}
	}
	// A terminating Namespace loses its finalizer when everything in it is deleted.
	spec := cloneField(obj, "spec")
	if list, _ := spec["finalizers"].([]any); status["phase"] != "Terminating" && !slices.Contains(list, any("kubernetes")) {
		spec["finalizers"] = append(slices.Clone(list), "kubernetes")
	}
	return &unstructured.Unstructured{Object: obj}
}

// cloneField replaces an object in a field by a copy, or by a new one if there is none,
// and returns it.
func cloneField(of map[string]any, field string) map[string]any {
	old, _ := of[field].(map[string]any)
	m := maps.Clone(old)
	if m == nil {
		m = map[string]any{}
	}
	of[field] = m
	return m
}
