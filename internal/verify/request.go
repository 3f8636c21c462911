package verify

import (
	"encoding/json"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/defaults"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/tree"
)

// The operations that admission changes objects for.
const (
	create = "CREATE"
	update = "UPDATE"
)

// request is one object as a server holds it when admission begins.
type request struct {
	operation   string
	object, old map[string]any
	namespace   map[string]any // nil for what is in none
	gvk         schema.GroupVersionKind
	resource    openapi.Resource
	kind        *openapi.Kind
}

// name is the object's, empty if a server is to generate one.
func (r *request) name() string {
	return (&unstructured.Unstructured{Object: r.object}).GetName()
}

// namespaceName is that of the request: an object of a cluster-scoped kind has
// none, a Namespace that of itself (Kubernetes spec §6.1).
func (r *request) namespaceName() string {
	switch {
	case r.isNamespace():
		return r.name()
	case !r.resource.Namespaced:
		return ""
	}
	return (&unstructured.Unstructured{Object: r.object}).GetNamespace()
}

// isNamespace reports whether the object is a Namespace.
func (r *request) isNamespace() bool { return r.gvk.Group == "" && r.gvk.Kind == "Namespace" }

// requests are what an object stands for. One that a server would not admit is
// nil.
func requests(types *openapi.Types, o Object) []*request {
	switch o.Operation {
	case create:
		return []*request{newRequest(types, o, create, nil)}
	case update:
		return []*request{newRequest(types, o, update, o.Old)}
	}
	return []*request{newRequest(types, o, create, nil), newRequest(types, o, update, o.Object)}
}

// newRequest decodes an object as a server does, nil if it would not.
func newRequest(types *openapi.Types, o Object, operation string, old map[string]any) *request {
	u := unstructured.Unstructured{Object: o.Object}
	r := &request{operation: operation, gvk: u.GroupVersionKind()}
	var known bool
	if r.resource, known = types.ResourceFor(r.gvk); !known {
		gvr, _ := meta.UnsafeGuessKindToResource(r.gvk)
		r.resource = openapi.Resource{GVR: gvr, Kind: r.gvk, Namespaced: u.GetNamespace() != "" || o.Namespace != nil}
	}
	r.kind, _ = types.Kind(r.gvk)
	if r.resource.Namespaced {
		name := u.GetNamespace()
		if name == "" {
			name = (&unstructured.Unstructured{Object: o.Namespace}).GetName()
		}
		if name == "" {
			name = "default"
		}
		r.namespace = namespaceObject(name, o.Namespace)
	}
	if r.object = r.decode(o.Object); r.object == nil {
		return nil
	}
	if operation == update {
		if r.old = r.decode(old); r.old == nil {
			return nil
		}
	}
	return r
}

// namespaceObject is the Namespace of that name, with what is given of it.
func namespaceObject(name string, given map[string]any) map[string]any {
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(given)}
	if u.Object == nil {
		u.Object = map[string]any{}
	}
	u.SetAPIVersion("v1")
	u.SetKind("Namespace")
	u.SetName(name)
	labels := u.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels["kubernetes.io/metadata.name"] = name
	u.SetLabels(labels)
	return u.Object
}

// decode is an object as a server decodes it, in the request's namespace; nil if
// that cannot be done. What is of no known kind is taken as it is.
func (r *request) decode(obj map[string]any) map[string]any {
	obj = plain(obj)
	if r.namespace != nil {
		obj = within(obj, (&unstructured.Unstructured{Object: r.namespace}).GetName())
	}
	if obj == nil || r.kind == nil {
		return obj
	}
	obj, err := r.kind.Normalize(obj)
	if err != nil {
		return nil
	}
	return obj
}

// Defaulted is an object with what a server fills in before it admits it, where
// that is known.
func Defaulted(obj map[string]any) map[string]any {
	out, _ := defaults.Apply(obj)
	return out
}

// within puts an object into a namespace; nil if its metadata is none.
func within(obj map[string]any, namespace string) map[string]any {
	m, ok := obj["metadata"].(map[string]any)
	if !ok && obj["metadata"] != nil {
		return nil
	}
	if m["namespace"] == namespace {
		return obj
	}
	obj, m = maps.Clone(obj), maps.Clone(m)
	if m == nil {
		m = map[string]any{}
	}
	m["namespace"] = namespace
	obj["metadata"] = m
	return obj
}

// plain is an object as it comes out of JSON: a float that is whole is an integer.
func plain(obj map[string]any) map[string]any {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil
	}
	out, err := tree.Decode(data)
	if err != nil {
		return nil
	}
	return out
}

// mostText is how much of a refusal is told, in bytes: some quote the whole
// expression.
const mostText = 400

// firstLine keeps a refusal to what can be read.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	if len(line) > mostText {
		return strings.ToValidUTF8(line[:mostText], "") + "…"
	}
	return line
}
