package translate

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// known is what types say about a location in every kind that a mutator applies
// to. An API server holds built-in kinds as Go values, so of these it is certain
// what a policy finds: no null and no wrong type, and some fields always.
type known struct {
	kinds []schema.GroupVersionKind // nil: any kind
	// builtin says that all kinds are built in and that the whole location is
	// declared. Nothing below holds otherwise.
	builtin bool
	nodes   []knownNode
	// undeclared is the first place that a built-in kind does not have, as in
	// "Service: spec.foo".
	undeclared string
	// schema says that all kinds have one and that it declares the whole location.
	schema bool
	// roots and places are those of the object and of the last node, for each kind.
	roots, places []openapi.Place
}

type knownNode struct {
	always bool // the field is there whenever its parent is
	atomic bool // a merge must not go below it
	inMap  bool // it is a key of a map and not a field of a struct
	// Of a list selector:
	merges bool // a merge tells the elements apart by the selector's key alone
	unique bool // and the API server refuses two elements with the same key
}

// lookup finds out about a location in some kinds; none are any.
func lookup(path legacy.Path, kinds []schema.GroupVersionKind, types *openapi.Types) known {
	k := known{kinds: kinds}
	k.builtin = len(k.kinds) > 0
	k.schema = k.builtin
	k.nodes = make([]knownNode, len(path))
	for i := range k.nodes {
		k.nodes[i] = knownNode{always: true, merges: true, unique: true}
	}
	for _, gvk := range k.kinds {
		kind, _ := types.Kind(gvk)
		root, ok := kind.Root()
		k.builtin = k.builtin && ok && kind.Builtin()
		k.schema = k.schema && ok
		if ok {
			k.add(kind, gvk, root, path)
		}
	}
	k.schema = k.schema && len(k.places) == len(k.kinds)
	k.builtin = k.builtin && k.schema
	return k
}

// metadataNodes are what is known of a label or annotation of any kind at all: a
// server sees to the metadata of custom kinds as well.
var metadataNodes = []knownNode{{always: true}, {}, {inMap: true}}

// add takes in what one kind says about the location.
func (k *known) add(kind *openapi.Kind, gvk schema.GroupVersionKind, at openapi.Place, path legacy.Path) {
	k.roots = append(k.roots, at)
	for i, node := range path {
		n := &k.nodes[i]
		next, ok := at.Element()
		if !node.List {
			next, ok = at.Field(node.Name)
			n.inMap = n.inMap || !at.Declares(node.Name)
			n.always = n.always && kind.Builtin() && present(kind, gvk, path[:i], node.Name)
		} else if ok {
			keys := at.Keys()
			n.merges = n.merges && len(keys) == 1 && keys[0] == node.Name
			n.unique = n.unique && n.merges && (keepsUnique[path[i-1].Name] || !kind.Builtin())
			n.always = n.always && kind.Builtin() && present(kind, gvk, path[:i+1], node.Name)
		}
		if !ok {
			if k.undeclared == "" && kind.Builtin() {
				k.undeclared = gvk.Kind + ": " + path[:i+1].String()
			}
			return
		}
		at = next
		n.atomic = n.atomic || at.Atomic()
	}
	k.places = append(k.places, at)
}

// keepsUnique are the lists of a Pod's spec in which an API server refuses two
// elements with one name (k8s.io/kubernetes pkg/apis/core/validation). It does not
// do so for every built-in list with a key, a container may have an environment
// variable twice, but for every list of a custom kind that declares one.
var keepsUnique = map[string]bool{
	"containers": true, "initContainers": true, "ephemeralContainers": true, "volumes": true,
}

// present reports whether objects always have a field, given its parent: it asks
// how an API server spells an object in which the parents are all there is. For a
// path that ends in a list selector, the parent is an element.
func present(kind *openapi.Kind, gvk schema.GroupVersionKind, parent legacy.Path, name string) bool {
	var content any = map[string]any{}
	for i := len(parent) - 1; i >= 0; i-- {
		if parent[i].List {
			content = []any{content}
		} else {
			content = map[string]any{parent[i].Name: content}
		}
	}
	obj := content.(map[string]any)
	obj["apiVersion"], obj["kind"] = gvk.GroupVersion().String(), gvk.Kind
	normal, err := kind.Normalize(obj)
	if err != nil {
		return false
	}
	var at any = normal
	for _, node := range parent {
		if list, ok := at.([]any); ok && node.List && len(list) > 0 {
			at = list[0]
		} else if fields, ok := at.(map[string]any); ok {
			at = fields[node.Name]
		}
	}
	fields, _ := at.(map[string]any)
	_, ok := fields[name]
	return ok
}

// undeclaredIn returns a field of a value that a server would not know at a place,
// empty if there is none.
func undeclaredIn(v any, p openapi.Place) string {
	switch v := v.(type) {
	case []any:
		element, ok := p.Element()
		if !ok {
			return "" // of another type, which a server refuses from anybody
		}
		for _, e := range v {
			if field := undeclaredIn(e, element); field != "" {
				return field
			}
		}
	case map[string]any:
		if _, list := p.Element(); list || p.Scalar() != "" {
			return ""
		}
		for _, k := range sortedKeys(v) {
			at, ok := p.Field(k)
			if !ok {
				return k
			}
			if field := undeclaredIn(v[k], at); field != "" {
				return k + "." + field
			}
		}
	}
	return ""
}
