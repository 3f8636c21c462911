package translate

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// known is what the schemas of all kinds of a mutator say about its location. API servers decode
// built-in kinds into Go values, so on these a policy finds no null, no value of a wrong type,
// and some fields always set.
type known struct {
	kinds []schema.GroupVersionKind // nil: any kind
	// builtin: all kinds are built in and declare the whole location. The
	// fields below are set only then.
	builtin bool
	nodes   []knownNode
	// nullable: some object on the way may be null. Even objects that a schema requires can be.
	nullable bool
	// undeclared is the first field that a built-in kind does not declare, as
	// in "Service: spec.foo".
	undeclared string
	// schema: all kinds have a schema, and it declares the whole location.
	schema bool
	// roots and places have, for each kind, the schema of the object and of the last node.
	roots, places []openapi.Place
}

type knownNode struct {
	always bool // the field is there whenever its parent is
	filled bool // the list is never empty: API servers refuse that
	atomic bool // a merge replaces it as a whole
	inMap  bool // it is a key of a map, not a field of a struct
	// Of a list selector:
	merges bool // a merge tells the elements apart by the selector's key alone
	unique bool // and the API server refuses two elements with the same key
}

// lookup returns what is known about a location in some kinds. No kinds means
// any.
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
	k.builtin = k.builtin && k.schema && !k.nullable
	return k
}

// metadataNodes describe a label or annotation of any kind: a server checks the metadata of
// custom kinds as well.
var metadataNodes = []knownNode{{always: true}, {}, {inMap: true}}

// add records what one kind says about the location.
func (k *known) add(kind *openapi.Kind, gvk schema.GroupVersionKind, at openapi.Place, path legacy.Path) {
	k.roots = append(k.roots, at)
	for i, node := range path {
		n := &k.nodes[i]
		next, ok := at.Element()
		if !node.List {
			next, ok = at.Field(node.Name)
			n.inMap = n.inMap || !at.Declares(node.Name)
			there, null := present(kind, gvk, path[:i], node.Name)
			n.always = n.always && kind.Builtin() && there
			n.filled = kind.Builtin() && node.Name == "containers" && keepsUnique[node.Name]
			// A list that is null fails wherever it is read, an object does
			// not.
			k.nullable = k.nullable || null && i+1 < len(path) && !path[i+1].List
		} else if ok {
			keys := at.Keys()
			n.merges = n.merges && len(keys) == 1 && keys[0] == node.Name
			n.unique = n.unique && n.merges && (keepsUnique[path[i-1].Name] || !kind.Builtin())
			there, _ := present(kind, gvk, path[:i+1], node.Name)
			n.always = n.always && kind.Builtin() && there
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

// keepsUnique are the lists of a Pod's spec in which an API server refuses two elements with the
// same name (k8s.io/kubernetes pkg/apis/core/validation). It allows duplicates in other built-in
// lists that declare a key: a container may set an environment variable twice. In custom kinds it
// refuses duplicates in every list that declares a key.
var keepsUnique = map[string]bool{
	"containers": true, "initContainers": true, "ephemeralContainers": true, "volumes": true,
}

// present reports whether objects always have a field, given its parent. It
// normalises an object that has only the parents, as an API server would, and
// looks whether the field is there; null reports whether it is null. For a path
// that ends in a list selector, the parent is an element.
func present(kind *openapi.Kind, gvk schema.GroupVersionKind, parent legacy.Path, name string) (there, null bool) {
	at, ok := spelled(kind, gvk, parent, map[string]any{})
	fields, _ := at.(map[string]any)
	if !ok {
		return false, false
	}
	v, ok := fields[name]
	return ok, ok && v == nil
}

// spelled returns v as an API server writes it in an object that has nothing else; false if the
// server drops it.
func spelled(kind *openapi.Kind, gvk schema.GroupVersionKind, path legacy.Path, v any) (any, bool) {
	for _, node := range slices.Backward(path) {
		if node.List {
			v = []any{v}
		} else {
			v = map[string]any{node.Name: v}
		}
	}
	obj := v.(map[string]any)
	obj["apiVersion"], obj["kind"] = gvk.GroupVersion().String(), gvk.Kind
	normal, err := kind.Normalize(obj)
	if err != nil {
		return nil, false
	}
	var at any = normal
	for _, node := range path {
		if list, ok := at.([]any); ok && node.List && len(list) > 0 {
			at = list[0]
			continue
		}
		fields, _ := at.(map[string]any)
		var ok bool
		if at, ok = fields[node.Name]; !ok {
			return nil, false
		}
	}
	return at, true
}

// keepsEmpty reports whether an API server that decodes a value keeps all of
// its members, including empty ones, which it does not for most built-in kinds.
func keepsEmpty(v, decoded any) bool {
	switch v := v.(type) {
	case map[string]any:
		fields, _ := decoded.(map[string]any)
		for k, e := range v {
			d, ok := fields[k]
			if !ok || !keepsEmpty(e, d) {
				return false
			}
		}
	case []any:
		list, _ := decoded.([]any)
		if len(list) != len(v) {
			return false
		}
		for i, e := range v {
			if !keepsEmpty(e, list[i]) {
				return false
			}
		}
	}
	return true
}

// undeclaredIn returns a field of v that the schema at p does not declare, "" if there is none.
func undeclaredIn(v any, p openapi.Place) string {
	switch v := v.(type) {
	case []any:
		element, ok := p.Element()
		if !ok {
			return "" // the type is wrong, and any server refuses it
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
		for _, k := range slices.Sorted(maps.Keys(v)) {
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
