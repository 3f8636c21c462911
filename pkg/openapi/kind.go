package openapi

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/openapi/smd"
)

// kindCache holds the kinds that were looked up and have a schema, at most as many as the
// sources have. It is a plain map with a lock because a sync.Map would allocate its key at
// every look-up.
type kindCache struct {
	mu sync.RWMutex
	m  map[schema.GroupVersionKind]*Kind
}

func (c *kindCache) get(gvk schema.GroupVersionKind) *Kind {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.m[gvk]
}

// all returns the kinds that are cached at this time.
func (c *kindCache) all() map[schema.GroupVersionKind]*Kind {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return maps.Clone(c.m)
}

// keep caches k and returns it or, if another goroutine was faster, the Kind that is cached.
func (c *kindCache) keep(k *Kind) *Kind {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept := c.m[k.gvk]; kept != nil {
		return kept
	}
	if c.m == nil {
		c.m = map[schema.GroupVersionKind]*Kind{}
	}
	c.m[k.gvk] = k
	return k
}

// A Kind has the schema and the Go type of one kind in one version.
type Kind struct {
	gvk    schema.GroupVersionKind
	model  Model   // nil: no schema
	goType *goType // nil: no Go type
	custom *custom // nil: not from a CustomResourceDefinition
}

// Kind looks a kind up. It does not open documents, so it is cheap.
//
// The error is a *NoGroupVersionError or a *NoKindError if there is no schema, depending on
// which is missing. The Kind is never nil: Settle and Normalize work without a schema (a JSON
// Patch on a Scale needs none), but Schema returns nil and Validate an error.
func (t *Types) Kind(gvk schema.GroupVersionKind) (*Kind, error) {
	now := t.now.Load()
	if k := now.kinds.get(gvk); k != nil {
		return k, nil
	}
	if m := now.lookup(gvk); m != nil {
		k := &Kind{gvk: gvk, model: m}
		if cm, ok := m.(*customModel); ok {
			k.custom = cm.custom
		} else {
			k.goType = goTypes().of(gvk)
		}
		return now.kinds.keep(k), nil
	}
	k := &Kind{gvk: gvk, goType: goTypes().of(gvk)}
	if now.documents[gvk.GroupVersion()] != nil {
		return k, &NoKindError{GVK: gvk}
	}
	return k, &NoGroupVersionError{GVK: gvk}
}

// GroupVersionKind names the kind.
func (k *Kind) GroupVersionKind() schema.GroupVersionKind { return k.gvk }

// Builtin reports whether the kind has a Go type in k8s.io/api, so that an API
// server holds its objects typed.
func (k *Kind) Builtin() bool { return k.goType != nil }

// Schema returns the merge schema: that of the document of the kind's own
// group-version and of no other (spec §2.6). The schema is nil for a Kind that
// came with an error. The first call opens the document.
func (k *Kind) Schema() (*smd.Schema, smd.TypeRef) {
	if k.model == nil {
		return nil, smd.TypeRef{}
	}
	return k.model.Schema()
}

// root is the object itself, for settling it.
func (k *Kind) root() *member {
	switch {
	case k.goType != nil:
		return &k.goType.root
	case k.custom != nil:
		return k.custom.root
	}
	return anything.others
}

// declares returns the document by which Settle rejects fields, false if there is none. A
// server that is older than the Go types silently drops fields that its document does not
// declare, because it decodes the responses of webhooks leniently. A merge follows the document
// in any case, and the embedded documents are those of the Go types.
func (k *Kind) declares(from Decoding) (Place, bool) {
	if _, ours := k.model.(*builtinModel); ours || k.goType == nil || from != FromJSONPatch {
		return Place{}, false
	}
	return k.Root()
}

// ConvertibleTo reports whether an object of this kind is converted to another version by
// rewriting its apiVersion. That is so for all versions, served or not, of a
// CustomResourceDefinition whose conversion strategy is None (spec §2.3;
// k8s.io/apiextensions-apiserver …/conversion/converter.go: NewConverter), but never for
// built-in kinds, nor for kinds that a webhook converts.
func (k *Kind) ConvertibleTo(gvk schema.GroupVersionKind) bool {
	if k.gvk == gvk {
		return true
	}
	return k.custom != nil && k.custom.rewritable &&
		k.gvk.GroupKind() == gvk.GroupKind() && k.custom.versions[gvk.Version]
}

// Validate returns the errors that make a whole object unfit for a merge, with the texts of
// structured-merge-diff: an undeclared field, a wrong type. Repeated keys in lists are
// accepted, as upstream accepts them in the live object (k8s.io/apiserver …/patch/smd.go:
// ApplyStructuredMergeDiff). For a kind without a schema the error is a *NoKindError.
func (k *Kind) Validate(obj map[string]any) error {
	s, ref := k.Schema()
	if s == nil {
		return &NoKindError{GVK: k.gvk}
	}
	_, err := smd.ParseableType{Schema: s, TypeRef: ref}.FromUnstructured(obj, smd.AllowDuplicates)
	return err
}
