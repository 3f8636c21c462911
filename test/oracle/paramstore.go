package oracle

import (
	"cmp"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
)

// paramStore is an informer that has synced and never changes. A real one
// lists in map order; this one lists by namespace and name.
type paramStore struct {
	resource schema.GroupResource
	objects  []paramObject
}

type paramObject struct {
	namespace, name string
	labels          labels.Set
	object          runtime.Object
}

var (
	_ informers.GenericInformer = (*paramStore)(nil)
	_ cache.GenericLister       = (*paramStore)(nil)
)

// newParamStore takes the params of one kind. As in a server's informers, a
// built-in kind is typed and has neither apiVersion, kind nor managedFields,
// and a custom resource keeps everything (spec §3.2).
func newParamStore(resource schema.GroupResource, params []*unstructured.Unstructured) (*paramStore, error) {
	s := &paramStore{resource: resource}
	for _, u := range params {
		o := paramObject{namespace: u.GetNamespace(), name: u.GetName(), labels: u.GetLabels(), object: u}
		if gvk := u.GroupVersionKind(); scheme.Scheme.Recognizes(gvk) {
			typed, err := toTyped(u)
			if err != nil {
				return nil, err
			}
			typed.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
			if m, err := meta.Accessor(typed); err == nil {
				m.SetManagedFields(nil)
			}
			o.object = typed
		}
		s.objects = append(s.objects, o)
	}
	slices.SortStableFunc(s.objects, func(a, b paramObject) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	return s, nil
}

func (s *paramStore) Informer() cache.SharedIndexInformer { return synced{} }
func (s *paramStore) Lister() cache.GenericLister         { return s }

// synced is the one question the dispatcher asks an informer.
type synced struct{ cache.SharedIndexInformer }

func (synced) HasSynced() bool { return true }

func (s *paramStore) ByNamespace(namespace string) cache.GenericNamespaceLister {
	in := &paramStore{resource: s.resource}
	for _, o := range s.objects {
		if o.namespace == namespace {
			in.objects = append(in.objects, o)
		}
	}
	return in
}

func (s *paramStore) List(selector labels.Selector) ([]runtime.Object, error) {
	var all []runtime.Object
	for _, o := range s.objects {
		if selector.Matches(o.labels) {
			all = append(all, o.object)
		}
	}
	return all, nil
}

func (s *paramStore) Get(name string) (runtime.Object, error) {
	for _, o := range s.objects {
		if o.name == name {
			return o.object, nil
		}
	}
	return nil, apierrors.NewNotFound(s.resource, name)
}
