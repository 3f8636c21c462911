package verify

import (
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/internal/apiserver/defaulting"
	"github.com/mapd-project/mapd/internal/words"
	"github.com/mapd-project/mapd/pkg/binding"
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
	user        string
	groups      []string
	object, old map[string]any
	namespace   map[string]any // nil for what is in none
	gvk         schema.GroupVersionKind
	resource    openapi.Resource
	kind        *openapi.Kind
}

// nobody is the user of requests whose user does not matter.
const nobody = "verify"

// name returns the object's name, "" if a server is to generate one.
func (r *request) name() string {
	return (&unstructured.Unstructured{Object: r.object}).GetName()
}

// namespaceName returns the request's namespace: "" for an object of a
// cluster-scoped kind, its own name for a Namespace (Kubernetes spec §6.1).
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

// requests returns the requests that an object stands for. One that a server
// would not admit is nil.
func requests(types *openapi.Types, o Object) []*request {
	switch o.Operation {
	case create:
		return []*request{newRequest(types, o, create, nil)}
	case update:
		return []*request{newRequest(types, o, update, o.Old)}
	}
	return []*request{newRequest(types, o, create, nil), newRequest(types, o, update, o.Object)}
}

// newRequest decodes an object as a server does. It returns nil if a server
// would refuse it.
func newRequest(types *openapi.Types, o Object, operation string, old map[string]any) *request {
	u := unstructured.Unstructured{Object: o.Object}
	r := &request{operation: operation, user: o.User, groups: o.Groups, gvk: u.GroupVersionKind()}
	if r.user == "" {
		r.user = nobody
	}
	if len(r.groups) == 0 {
		r.groups = []string{"system:authenticated"} // as every user is
	}
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

// namespaceObject returns the Namespace of that name, with the given fields.
func namespaceObject(name string, given map[string]any) map[string]any {
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(given)}
	if u.Object == nil {
		u.Object = map[string]any{}
	}
	u.SetAPIVersion("v1")
	u.SetKind("Namespace")
	u.SetName(name)
	return binding.StoredNamespace(u).Object
}

// nameLabel is the label with its name that a server gives each Namespace.
const nameLabel = "kubernetes.io/metadata.name"

// decode decodes an object as a server does, in the request's namespace. It
// returns nil if that fails, and objects of unknown kinds as they are.
func (r *request) decode(obj map[string]any) map[string]any {
	if obj = plain(obj); obj == nil {
		return nil
	}
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
	// A server gives each Namespace a label with its name, whatever a client sends.
	if u := (&unstructured.Unstructured{Object: obj}); r.isNamespace() && u.GetName() != "" {
		setLabel(u, nameLabel, u.GetName())
	}
	return obj
}

// Defaulted returns an object with the defaults that a server fills in before
// admission, as far as they are known.
func Defaulted(obj map[string]any) map[string]any {
	out, _ := defaulting.Apply(obj)
	return out
}

// within puts an object into a namespace. It returns nil if the metadata is not
// an object.
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

// plain returns an object as if it had been read from JSON: whole floats become
// integers.
func plain(obj map[string]any) map[string]any {
	out, err := tree.Reread(obj)
	if err != nil {
		return nil
	}
	return out
}

// mostText is how much of a refusal is kept, in bytes. Some quote the whole
// expression.
const mostText = 400

// firstLine shortens a refusal to its first line.
func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return words.Cut(line, mostText)
}
