package expand

import (
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// Options say how an object is expanded. The zero value is usable.
type Options struct {
	// Namespace is the name of the object's Namespace, nil if it is not known. New objects are
	// put there, or in the namespace that the object has.
	Namespace *string
	// Admit returns a new object as it will be stored, or false if it will be refused. It must
	// not modify o.Made. If it is nil, the object is stored as it was made.
	Admit func(o *Object) (stored *unstructured.Unstructured, ok bool, err error)
	// Limits bound the objects that are made from one object.
	Limits Limits
}

// Limits bound an expansion. Zero means the default.
type Limits struct {
	// Objects is the largest number of objects, 100 by default, and Bytes their largest size
	// together, 16 MiB by default. Templates multiply: each of ten may generate objects that
	// each of ten others expands.
	Objects, Bytes int
}

const (
	defaultObjects = 100
	defaultBytes   = 16 << 20
	// maxDepth is Gatekeeper's bound for chains of objects that create objects.
	maxDepth = 30
)

// Object is an object that another one will create.
type Object struct {
	// Made is the object as the template makes it. It shares memory with Parent and
	// must not be modified.
	Made *unstructured.Unstructured
	// Parent is the object from which it was made, as stored, and Template the template.
	Parent   *unstructured.Unstructured
	Template *legacy.Template
	// Depth is 1 for objects that the expanded object creates itself.
	Depth int
	// Size is the estimated size as JSON, in bytes.
	Size int
}

// Expand returns the objects that an object will create, and those that these will create:
// deeper ones before shallower ones, otherwise sorted by the names of their templates
// (Gatekeeper spec §10.3). The object is not modified. After an error there is no result.
func (s *Set) Expand(object *unstructured.Unstructured, o Options) ([]*Object, error) {
	e := expansion{Set: s, Options: o}
	if e.Limits.Objects == 0 {
		e.Limits.Objects = defaultObjects
	}
	if e.Limits.Bytes == 0 {
		e.Limits.Bytes = defaultBytes
	}
	if err := e.expand(object, 0); err != nil {
		return nil, err
	}
	return e.made, nil
}

// expansion is one call of Expand.
type expansion struct {
	*Set
	Options
	made         []*Object
	count, bytes int
}

func (e *expansion) expand(parent *unstructured.Unstructured, depth int) error {
	if depth >= maxDepth {
		return fmt.Errorf("maximum recursion depth of %d reached", maxDepth)
	}
	gvk := parent.GroupVersionKind()
	if gvk.Empty() {
		return fmt.Errorf("cannot expand resource %s with empty GVK", parent.GetName())
	}
	var here []*Object
	for _, t := range e.For(gvk) {
		before := e.bytes
		made, err := e.make(parent, t)
		switch {
		case err != nil:
			return err
		case made != nil:
			here = append(here, &Object{Made: made, Parent: parent, Template: t, Depth: depth + 1, Size: e.bytes - before})
		}
	}
	stored := make([]*unstructured.Unstructured, len(here))
	for i, o := range here {
		stored[i] = o.Made
		if e.Admit == nil {
			continue
		}
		next, ok, err := e.Admit(o)
		switch {
		case err != nil:
			return fmt.Errorf("failed to mutate resultant resource %s: %w", o.Made.GetName(), err)
		case !ok:
			next = nil
		}
		stored[i] = next
	}
	for _, next := range stored {
		if next == nil {
			continue
		}
		if err := e.expand(next, depth+1); err != nil {
			return err
		}
	}
	e.made = append(e.made, here...)
	return nil
}

// make returns the object that a template makes from parent; nil if parent lacks the source of
// a built-in template.
func (e *expansion) make(parent *unstructured.Unstructured, t *legacy.Template) (*unstructured.Unstructured, error) {
	source, ok, err := unstructured.NestedFieldNoCopy(parent.Object, strings.Split(t.Source, ".")...)
	if err != nil {
		return nil, fmt.Errorf("could not extract source field from unstructured: %w", cut(err))
	}
	if source == nil && t.BuiltIn {
		return nil, nil // a ReplicationController may lack a template
	}
	if !ok {
		return nil, fmt.Errorf("could not find source field %q in resource %s", t.Source, parent.GetName())
	}
	from, ok := source.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("could not extract source field from unstructured: %w",
			cut(fmt.Errorf(".%s accessor error: %v is of the type %T, expected map[string]interface{}", t.Source, source, source)))
	}
	if e.count++; e.count > e.Limits.Objects {
		return nil, fmt.Errorf("%s expands into more than %d objects", describe(parent), e.Limits.Objects)
	}
	if e.bytes += size(from); e.bytes > e.Limits.Bytes {
		return nil, fmt.Errorf("what %s expands into has more than %d bytes", describe(parent), e.Limits.Bytes)
	}
	u := &unstructured.Unstructured{Object: maps.Clone(from)}
	if u.Object == nil {
		u.Object = map[string]any{}
	}
	if meta, ok := from["metadata"].(map[string]any); ok {
		u.Object["metadata"] = maps.Clone(meta)
	}
	u.SetGroupVersionKind(t.Generates)
	if e.Namespace != nil {
		u.SetNamespace(*e.Namespace)
	} else {
		namespace, found, err := unstructured.NestedString(parent.Object, "metadata", "namespace")
		switch {
		case err != nil:
			return nil, fmt.Errorf("could not extract namespace field %q in parent resource %s", t.Source, parent.GetName())
		case found:
			u.SetNamespace(namespace)
		}
	}
	u.SetName(nameOf(parent, t.Generates))
	own(u, parent)
	return u, nil
}

// nameOf returns the name that Gatekeeper gives to an object. It is not the name that a
// controller will give it.
func nameOf(parent *unstructured.Unstructured, gvk schema.GroupVersionKind) string {
	name := parent.GetName()
	if gvk.Kind != "" {
		name += "-" + gvk.Kind
	}
	return strings.ToLower(name)
}

// own adds parent to the owners of u, if parent has an apiVersion, a kind and a name.
func own(u, parent *unstructured.Unstructured) {
	owner := metav1.OwnerReference{APIVersion: parent.GetAPIVersion(), Kind: parent.GetKind(), Name: parent.GetName()}
	if owner.APIVersion == "" || owner.Kind == "" || owner.Name == "" {
		return
	}
	owners := u.GetOwnerReferences()
	for _, o := range owners {
		if o.APIVersion == owner.APIVersion && o.Kind == owner.Kind && o.Name == owner.Name {
			return
		}
	}
	u.SetOwnerReferences(append(owners, owner))
}

func describe(u *unstructured.Unstructured) string {
	if name := u.GetName(); name != "" {
		return u.GetKind() + " " + name
	}
	return u.GetKind()
}

// size estimates how many bytes a value has as JSON.
func size(v any) int {
	switch v := v.(type) {
	case string:
		return len(v) + 2
	case map[string]any:
		n := 2
		for k, e := range v {
			n += len(k) + 4 + size(e)
		}
		return n
	case []any:
		n := 2
		for _, e := range v {
			n += 1 + size(e)
		}
		return n
	default:
		return 8
	}
}

// maxText bounds the text of an error, which quotes the wrong value.
const maxText = 4 << 10

func cut(err error) error {
	if text := err.Error(); len(text) > maxText {
		return fmt.Errorf("%s…", strings.ToValidUTF8(text[:maxText], ""))
	}
	return err
}
