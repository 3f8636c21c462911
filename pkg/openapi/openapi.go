// Package openapi answers one question: what does a kind look like? It holds the OpenAPI v3
// documents of the built-in kinds (embedded) and of custom ones (from
// CustomResourceDefinitions). It returns the merge schema of a kind in the form of
// structured-merge-diff and the resource that serves the kind, and it converts a patched object
// to the form in which an API server would hold it.
//
// Nothing here talks to a server. Everything is safe for concurrent use, and returned values
// never change. Documents are opened once, when a schema is first needed.
package openapi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/openapi/smd"
)

// A Source is a set of OpenAPI documents, one for each group-version, and the
// resources they serve. Methods are called from many goroutines at a time.
type Source interface {
	// GroupVersions lists the documents, each once, in any order.
	GroupVersions() []schema.GroupVersion

	// Resources lists the served resources, in the order in which a server registers them,
	// which is the order of Equivalents.
	Resources() []Resource

	// Lookup returns a kind of the document of its own group-version, nil if the document lacks
	// it; it is only called for GroupVersions. It must be cheap, and not open the document.
	// Models must be comparable with ==.
	Lookup(gvk schema.GroupVersionKind) Model
}

// A Model is a kind in a document of a Source.
type Model interface {
	// Schema returns the merge schema of the kind. It may open the document, so the first call
	// may take milliseconds. It cannot return an error, so a Source has to check the document
	// before.
	Schema() (*smd.Schema, smd.TypeRef)
}

// Resource describes how a kind is served.
type Resource struct {
	GVR        schema.GroupVersionResource
	Kind       schema.GroupVersionKind
	Namespaced bool

	// Subresources are the names of its subresources, sorted. KindFor
	// returns their kinds.
	Subresources []string

	// Storage names the stored objects: resources with the same Storage are views of the same
	// objects in several group-versions. Empty means the group and the plural name.
	Storage string

	// SubresourceKinds are the kinds of those subresources whose kind is not
	// that of the resource, such as Scale. Nil is none.
	SubresourceKinds map[string]schema.GroupVersionKind
}

func (r *Resource) storage() string {
	if r.Storage != "" {
		return r.Storage
	}
	return r.GVR.GroupResource().String()
}

// NoGroupVersionError reports that there is no document of the group-version. A server then
// responds with 503: "there can be a delay between when CustomResourceDefinitions are created
// and when they are available".
type NoGroupVersionError struct{ GVK schema.GroupVersionKind }

func (e *NoGroupVersionError) Error() string {
	return fmt.Sprintf("no schema for %v", e.GVK)
}

// NoKindError reports that the group-version is known but does not publish this
// kind, which is so for Scale, Eviction, TokenRequest and the options of
// CONNECT (spec §2.6). Its text is the API server's.
type NoKindError struct{ GVK schema.GroupVersionKind }

func (e *NoKindError) Error() string {
	return fmt.Sprintf("no corresponding type for %v", e.GVK)
}

// Types are the kinds of some sources. Methods may be called while Update runs; each uses
// either the old sources or the new ones.
type Types struct {
	now atomic.Pointer[table]
}

// table is the state of Types between two updates. Apart from its cache it is immutable.
type table struct {
	documents map[schema.GroupVersion][]Source // in the order given
	resources map[schema.GroupVersionResource]*Resource
	byKind    map[schema.GroupVersionKind]*Resource
	stored    map[string][]*Resource
	kinds     kindCache
}

// New returns the types of sources. If two sources have the same kind or resource, the earlier
// source counts.
func New(sources ...Source) *Types {
	t := &Types{}
	t.now.Store(newTable(sources))
	return t
}

// Update replaces the sources, all at once: later calls of t's methods return the new kinds. A
// Kind that was returned before does not change. If the Model of a kind is the same as before
// (==), Kind returns the same *Kind. Calls of Update must not overlap.
func (t *Types) Update(sources ...Source) {
	next := newTable(sources)
	for gvk, k := range t.now.Load().kinds.all() {
		if m := next.lookup(gvk); m != nil && m == k.model {
			next.kinds.keep(k)
		}
	}
	t.now.Store(next)
}

func newTable(sources []Source) *table {
	t := &table{
		documents: map[schema.GroupVersion][]Source{},
		resources: map[schema.GroupVersionResource]*Resource{},
		byKind:    map[schema.GroupVersionKind]*Resource{},
		stored:    map[string][]*Resource{},
	}
	for _, s := range sources {
		for _, gv := range s.GroupVersions() {
			t.documents[gv] = append(t.documents[gv], s)
		}
		for _, r := range s.Resources() {
			if t.resources[r.GVR] != nil {
				continue
			}
			t.resources[r.GVR] = &r
			if t.byKind[r.Kind] == nil {
				t.byKind[r.Kind] = &r
			}
			t.stored[r.storage()] = append(t.stored[r.storage()], &r)
		}
	}
	return t
}

// lookup finds a kind in the documents of its group-version.
func (t *table) lookup(gvk schema.GroupVersionKind) Model {
	for _, s := range t.documents[gvk.GroupVersion()] {
		if m := s.Lookup(gvk); m != nil {
			return m
		}
	}
	return nil
}

// ResourceFor returns the resource that serves a kind: "pods" for Pod. It knows
// main resources only, so it returns false for Scale.
func (t *Types) ResourceFor(gvk schema.GroupVersionKind) (Resource, bool) {
	if r := t.now.Load().byKind[gvk]; r != nil {
		return r.copy(), true
	}
	return Resource{}, false
}

// Resources lists all resources, sorted by group, version and name. It serves look-ups by kind
// without a version.
func (t *Types) Resources() []Resource {
	resources := t.now.Load().resources
	out := make([]Resource, 0, len(resources))
	for _, r := range resources {
		out = append(out, r.copy())
	}
	slices.SortFunc(out, func(a, b Resource) int {
		return cmp.Or(
			strings.Compare(a.GVR.Group, b.GVR.Group),
			strings.Compare(a.GVR.Version, b.GVR.Version),
			strings.Compare(a.GVR.Resource, b.GVR.Resource),
		)
	})
	return out
}

// KindFor returns the kind of objects in requests for a resource or subresource: autoscaling/v1
// Scale for deployments/scale, policy/v1 Eviction for pods/eviction, Pod for pods/status. For
// CONNECT it is the kind of the options.
func (t *Types) KindFor(gvr schema.GroupVersionResource, subresource string) (schema.GroupVersionKind, bool) {
	r := t.now.Load().resources[gvr]
	if r == nil {
		return schema.GroupVersionKind{}, false
	}
	if subresource == "" {
		return r.Kind, true
	}
	if !slices.Contains(r.Subresources, subresource) {
		return schema.GroupVersionKind{}, false
	}
	if kind, ok := r.SubresourceKinds[subresource]; ok {
		return kind, true
	}
	return r.Kind, true
}

// Equivalents lists the other group-versions in which the same stored objects
// are served (spec §2.3), in the order in which a server registers them: the
// versions of the group, core events and events.k8s.io events for one another,
// the served versions of a CustomResourceDefinition as it lists them.
func (t *Types) Equivalents(gvr schema.GroupVersionResource) []Resource {
	now := t.now.Load()
	r := now.resources[gvr]
	if r == nil {
		return nil
	}
	var out []Resource
	for _, other := range now.stored[r.storage()] {
		if other != r {
			out = append(out, other.copy())
		}
	}
	return out
}

func (r *Resource) copy() Resource {
	out := *r
	out.Subresources = slices.Clone(r.Subresources)
	return out
}
