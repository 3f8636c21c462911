package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	clientopenapi "k8s.io/client-go/openapi"

	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/openapi"
)

const (
	// discoveryInterval is how often the server is asked which kinds it serves, besides the
	// CustomResourceDefinitions, which are watched. It is the interval of the in-tree plugin
	// (spec §3.3).
	discoveryInterval = 30 * time.Second
	// discoveryTimeout bounds one round: an aggregated server that hangs must not delay the kinds
	// of all others for long.
	discoveryTimeout = 20 * time.Second
)

// embeddedMinor is the minor release of Kubernetes 1 whose documents openapi.Builtin has.
const embeddedMinor = "37"

var (
	definitionResource = schema.GroupVersionResource{Group: api.DefinitionGroup, Version: "v1", Resource: "customresourcedefinitions"}
	apiServiceResource = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
)

// schemas keeps openapi.Types equal to what a cluster serves. It combines three sources:
//
//   - the group-versions of the server's own, as discovery lists them, with
//     the embedded documents if the server is of their release, else with its own;
//   - every established CustomResourceDefinition, which is watched, so that a new
//     kind is known as soon as the server knows it;
//   - whatever else discovery lists, which is what aggregated servers serve, with
//     their documents.
//
// Where two have the same kind the first one counts, as it does in a server.
type schemas struct {
	disco   discovery.DiscoveryInterfaceWithContext
	log     *slog.Logger
	types   *openapi.Types
	changed func() // called when types has changed

	definitions *watch.Mirror[*definition]
	apiServices *watch.Mirror[apiService]
	rebuild     watch.Signal // notified when known has changed
	refresh     watch.Signal // notified when the server may serve other kinds

	known atomic.Pointer[discovered] // nil until discovery has succeeded once

	ready   atomic.Bool
	mu      sync.Mutex
	foreign map[apiService]bool // the aggregated ones; guarded by mu

	// Only the goroutine that rebuilds uses the following fields.
	sources []openapi.Source
	custom  map[schema.GroupVersion]bool // group-versions that had definitions
}

// newSchemas returns schemas that call changed when Types has changed. changed must return soon.
func newSchemas(client dynamic.Interface, disco discovery.DiscoveryInterface, log *slog.Logger, changed func()) *schemas {
	s := &schemas{
		disco: discovery.ToDiscoveryInterfaceWithContext(disco), log: log, types: openapi.New(), changed: changed,
		rebuild: watch.NewSignal(), refresh: watch.NewSignal(),
		custom: map[schema.GroupVersion]bool{},
	}
	s.definitions = watch.New(watch.Options[*definition]{
		Client: client, Resource: definitionResource, Log: log, Keep: s.define, Changed: s.rebuild.Notify,
	})
	s.apiServices = watch.New(watch.Options[apiService]{
		Client: client, Resource: apiServiceResource, Log: log, Keep: register, Changed: s.servicesChanged,
	})
	return s
}

// Types returns the kinds that the cluster serves. They are empty until Ready.
func (s *schemas) Types() *openapi.Types { return s.types }

// Ready reports whether all sources have been loaded once.
func (s *schemas) Ready() bool { return s.ready.Load() }

// Run follows the cluster until ctx is done.
func (s *schemas) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { s.definitions.Run(ctx) })
	wg.Go(func() { s.apiServices.Run(ctx) })
	wg.Go(func() { s.discover(ctx) })
	for s.rebuild.WaitQuiet(ctx) {
		s.build()
	}
	return nil
}

// A definition is the part of a CustomResourceDefinition that schemas need.
type definition struct {
	uid         types.UID
	generation  int64
	established bool
	sum         [sha256.Size]byte // of what it defines
	source      openapi.Source    // nil: it cannot be used, or cannot be used yet
	versions    []schema.GroupVersion
}

// define returns the definition in an object. If the relevant fields have not changed, it keeps
// the old source: CustomResourceDefinitions are written often, and a new source makes much be
// built again.
func (s *schemas) define(u *unstructured.Unstructured, old *definition) *definition {
	d := &definition{uid: u.GetUID(), generation: u.GetGeneration(), established: isEstablished(u)}
	if old != nil && old.uid == d.uid && old.generation == d.generation && old.established == d.established {
		return old
	}
	d.versions = definitionVersions(u)
	if !d.established {
		return d
	}
	log := s.log.With("customresourcedefinition", u.GetName())
	text, err := json.Marshal(u.Object["spec"])
	if err != nil {
		log.Error("the CustomResourceDefinition cannot be used", "error", err)
		return d
	}
	d.sum = sha256.Sum256(text)
	if old != nil && old.source != nil && old.sum == d.sum {
		d.source = old.source
		return d
	}
	if d.source, err = openapi.Served(u, func(err error) { log.Error("the schema of the CustomResourceDefinition cannot be used", "error", err) }); err != nil {
		log.Error("the CustomResourceDefinition cannot be used", "error", err)
		d.source = nil
	}
	return d
}

// isEstablished reports whether the server serves what the object defines.
func isEstablished(u *unstructured.Unstructured) bool {
	return condition(u, "Established")
}

func condition(u *unstructured.Unstructured, name string) bool {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	return slices.ContainsFunc(conditions, func(c any) bool {
		m, _ := c.(map[string]any)
		return m["type"] == name && m["status"] == string(metav1.ConditionTrue)
	})
}

func definitionVersions(u *unstructured.Unstructured) []schema.GroupVersion {
	spec, _ := u.Object["spec"].(map[string]any)
	group, _ := spec["group"].(string)
	versions, _ := spec["versions"].([]any)
	var out []schema.GroupVersion
	for _, v := range versions {
		m, _ := v.(map[string]any)
		if name, ok := m["name"].(string); ok {
			out = append(out, schema.GroupVersion{Group: group, Version: name})
		}
	}
	return out
}

// An apiService is the part of an APIService that schemas need: who serves a group-version.
type apiService struct {
	gv        schema.GroupVersion
	origin    origin
	available bool
}

type origin int

const (
	unknownOrigin origin = iota
	serverItself         // built in
	customDefined        // by CustomResourceDefinitions
	aggregated           // by another server
)

// register returns the apiService in an object. The label that it reads is the aggregator's
// (k8s.io/kube-aggregator pkg/controllers/autoregister).
func register(u *unstructured.Unstructured, _ apiService) apiService {
	spec, _ := u.Object["spec"].(map[string]any)
	group, _ := spec["group"].(string)
	ver, _ := spec["version"].(string)
	a := apiService{gv: schema.GroupVersion{Group: group, Version: ver}, available: condition(u, "Available")}
	switch label := u.GetLabels()["kube-aggregator.kubernetes.io/automanaged"]; {
	case spec["service"] != nil:
		a.origin = aggregated
	case label == "onstart":
		a.origin = serverItself
	case label == "true":
		a.origin = customDefined
	}
	return a
}

// servicesChanged asks for a round of discovery if aggregated APIs have changed. Kinds of the
// server itself and of definitions are known without discovery.
func (s *schemas) servicesChanged() {
	now := map[apiService]bool{}
	s.apiServices.Each("", func(_ string, a apiService) {
		if a.origin == aggregated {
			now[a] = true
		}
	})
	s.mu.Lock()
	same := maps.Equal(now, s.foreign)
	s.foreign = now
	s.mu.Unlock()
	if !same {
		s.refresh.Notify()
	}
}

// A discovered is the result of one round of discovery. It is immutable.
type discovered struct {
	minor  string
	groups map[schema.GroupVersion]*group
	// waiting: the server will soon serve more, so discovery has to be repeated.
	waiting bool
}

// A group is a group-version that does not come from definitions. It is an openapi.Source.
type group struct {
	gv        schema.GroupVersion
	resources []openapi.Resource
	models    openapi.Source // nil: there is no document
	foreign   bool           // another server serves it
}

func (g *group) GroupVersions() []schema.GroupVersion {
	if g.models == nil {
		return nil
	}
	return []schema.GroupVersion{g.gv}
}

func (g *group) Resources() []openapi.Resource { return g.resources }

func (g *group) Lookup(gvk schema.GroupVersionKind) openapi.Model { return g.models.Lookup(gvk) }

// discover asks the server repeatedly which kinds it serves, until ctx is done.
func (s *schemas) discover(ctx context.Context) {
	note := watch.LogOutcomes(s.log.With("resource", "discovery"))
	// Definitions and APIServices tell which server has which group-version. The latter are
	// optional, because mapd may have no right to read them.
	select {
	case <-ctx.Done():
		return
	case <-s.definitions.Read():
	}
	select {
	case <-ctx.Done():
		return
	case <-s.apiServices.Read():
	case <-time.After(time.Second):
	}
	docs := newDocuments(s.disco)
	delay := watch.MinRetry
	for ctx.Err() == nil {
		before := s.known.Load()
		now, err := s.ask(ctx, before, docs)
		if ctx.Err() != nil {
			return
		}
		note(err)
		if now != nil {
			s.known.Store(now)
			s.rebuild.Notify()
		}
		wait := discoveryInterval
		switch {
		case now == nil:
			wait = delay
			delay = min(2*delay, watch.MaxRefusedRetry)
		case now.waiting:
			wait = delay
			delay = min(2*delay, discoveryInterval)
		default:
			delay = watch.MinRetry
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.refresh:
			// The server serves new kinds a moment after it has announced them.
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			delay = watch.MinRetry
		}
		timer.Stop()
	}
}

// ask makes one round of discovery. A group-version that cannot be read stays as it was. ask
// returns nil and the error if nothing can be read.
func (s *schemas) ask(ctx context.Context, before *discovered, docs *documents) (*discovered, error) {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	release, err := s.disco.ServerVersionWithContext(ctx)
	if err != nil {
		return nil, err
	}
	_, lists, err := discovery.ServerGroupsAndResourcesWithContext(ctx, s.disco)
	failed, partly := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partly {
		return nil, err
	}
	origins := map[schema.GroupVersion]apiService{}
	s.apiServices.Each("", func(_ string, a apiService) { origins[a.gv] = a })

	slices.SortFunc(lists, func(a, b *metav1.APIResourceList) int { return cmp.Compare(a.GroupVersion, b.GroupVersion) })
	now := &discovered{minor: minor(release.Minor), groups: map[schema.GroupVersion]*group{}}
	var errs []error
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || failed[gv] != nil {
			continue
		}
		if origins[gv].origin == customDefined || s.isCustom(gv) && origins[gv].origin != aggregated {
			continue
		}
		g := &group{gv: gv, resources: resourcesOf(gv, list.APIResources), foreign: origins[gv].origin == aggregated}
		if now.minor == embeddedMinor && !g.foreign && isEmbedded(gv) {
			g.models = openapi.Builtin()
		} else if g.models, err = docs.find(ctx, gv); g.models == nil {
			if err != nil {
				errs = append(errs, err)
			}
			// A server publishes the document of a new group-version a little later.
			now.waiting = true
			g.models = fallback(g, before)
		}
		now.groups[gv] = before.reuse(g)
	}
	for _, gv := range slices.SortedFunc(maps.Keys(failed), compareVersions) {
		if g := before.group(gv); g != nil {
			now.groups[gv] = g
		}
		errs = append(errs, failed[gv])
	}
	for gv, a := range origins {
		if a.origin == aggregated && a.available && now.groups[gv] == nil {
			now.waiting = true
		}
	}
	docs.done()
	return now, errors.Join(errs...)
}

// group returns a group-version, nil if it is unknown. d may be nil.
func (d *discovered) group(gv schema.GroupVersion) *group {
	if d == nil {
		return nil
	}
	return d.groups[gv]
}

// reuse returns the equal group of d, or g if there is none, so that equal groups keep their
// pointer.
func (d *discovered) reuse(g *group) *group {
	if old := d.group(g.gv); old != nil && old.models == g.models && old.foreign == g.foreign && reflect.DeepEqual(old.resources, g.resources) {
		return old
	}
	return g
}

// fallback returns a replacement for a document that cannot be read: the one from before or, for
// a group-version of the server's own, the embedded one, which is of another release and may
// differ in some fields.
func fallback(g *group, before *discovered) openapi.Source {
	if old := before.group(g.gv); old != nil && old.models != nil {
		return old.models
	}
	if !g.foreign && isEmbedded(g.gv) {
		return openapi.Builtin()
	}
	return nil
}

// minor returns a minor version without suffixes of vendors: 29+ becomes 29.
func minor(s string) string {
	end := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		return s
	}
	return s[:end]
}

var embedded = sync.OnceValue(func() map[schema.GroupVersion]bool {
	m := map[schema.GroupVersion]bool{}
	for _, gv := range openapi.Builtin().GroupVersions() {
		m[gv] = true
	}
	return m
})

func isEmbedded(gv schema.GroupVersion) bool { return embedded()[gv] }

// isCustom reports whether a CustomResourceDefinition has the group-version.
func (s *schemas) isCustom(gv schema.GroupVersion) bool {
	if isEmbedded(gv) {
		return false
	}
	found := false
	s.definitions.Each("", func(_ string, d *definition) { found = found || slices.Contains(d.versions, gv) })
	return found
}

// build combines the sources, and updates the types if the sources have changed.
func (s *schemas) build() {
	known := s.known.Load()
	if known == nil || !s.definitions.IsRead() {
		return
	}
	defined := map[string]openapi.Source{}
	s.definitions.Each("", func(name string, d *definition) {
		for _, gv := range d.versions {
			s.custom[gv] = true
		}
		if d.source != nil {
			defined[name] = d.source
		}
	})
	var sources, others []openapi.Source
	for _, gv := range slices.SortedFunc(maps.Keys(known.groups), compareVersions) {
		switch g := known.groups[gv]; {
		case isEmbedded(gv):
			sources = append(sources, g)
		case g.foreign || !s.custom[gv]:
			others = append(others, g)
		}
		// Otherwise the definition of the group-version is gone, but discovery still lists it.
	}
	for _, name := range slices.Sorted(maps.Keys(defined)) {
		sources = append(sources, defined[name])
	}
	sources = append(sources, others...)
	if s.ready.Load() && slices.Equal(sources, s.sources) {
		return
	}
	s.sources = sources
	s.types.Update(sources...)
	s.ready.Store(true)
	s.changed()
}

// compareVersions orders group-versions as a server does: the core group first, and in each group
// the preferred version first.
func compareVersions(a, b schema.GroupVersion) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), version.CompareKubeAwareVersionStrings(b.Version, a.Version))
}

// resourcesOf reads a list of discovery.
func resourcesOf(gv schema.GroupVersion, list []metav1.APIResource) []openapi.Resource {
	byName := map[string]*openapi.Resource{}
	for _, r := range list {
		if strings.Contains(r.Name, "/") {
			continue
		}
		res := &openapi.Resource{GVR: gv.WithResource(r.Name), Kind: kindIn(gv, r), Namespaced: r.Namespaced}
		if gv.Group == "events.k8s.io" && r.Name == "events" {
			// The only two groups that share stored objects: k8s.io/kubernetes pkg/kubeapiserver,
			// AddCohabitatingResources.
			res.Storage = "events"
		}
		byName[r.Name] = res
	}
	for _, r := range list {
		name, sub, ok := strings.Cut(r.Name, "/")
		if !ok || strings.Contains(sub, "/") {
			continue
		}
		res := byName[name]
		if res == nil {
			continue
		}
		res.Subresources = append(res.Subresources, sub)
		if kind := kindIn(gv, r); kind != res.Kind {
			if res.SubresourceKinds == nil {
				res.SubresourceKinds = map[string]schema.GroupVersionKind{}
			}
			res.SubresourceKinds[sub] = kind
		}
	}
	out := make([]openapi.Resource, 0, len(byName))
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		slices.Sort(byName[name].Subresources)
		out = append(out, *byName[name])
	}
	return out
}

// kindIn returns the kind of a listed resource. An empty group and version are those of the list.
func kindIn(gv schema.GroupVersion, r metav1.APIResource) schema.GroupVersionKind {
	if r.Version != "" {
		gv = schema.GroupVersion{Group: r.Group, Version: r.Version}
	}
	return gv.WithKind(r.Kind)
}

// documents has the OpenAPI documents that were read from the server. A document is read again
// only when its address in the server's index changes, which contains a hash.
type documents struct {
	paths func(context.Context) (map[string]clientopenapi.GroupVersionWithContext, error)
	read  map[string]openapi.Source // by address

	// The following fields are those of one round.
	index map[string]clientopenapi.GroupVersionWithContext // nil: not asked for
	err   error                                            // of reading the index
	used  map[string]bool                                  // addresses that this round has used
}

func newDocuments(disco discovery.DiscoveryInterfaceWithContext) *documents {
	return &documents{
		paths: func(ctx context.Context) (map[string]clientopenapi.GroupVersionWithContext, error) {
			return disco.OpenAPIV3WithContext(ctx).PathsWithContext(ctx)
		},
		read: map[string]openapi.Source{}, used: map[string]bool{},
	}
}

// find gives the document of a group-version, nil if the server publishes none.
func (d *documents) find(ctx context.Context, gv schema.GroupVersion) (openapi.Source, error) {
	if d.index == nil && d.err == nil {
		d.index, d.err = d.paths(ctx)
	}
	if d.err != nil {
		return nil, fmt.Errorf("the index of OpenAPI documents: %w", d.err)
	}
	path := "apis/" + gv.String()
	if gv.Group == "" {
		path = "api/" + gv.Version
	}
	entry := d.index[path]
	if entry == nil {
		return nil, nil
	}
	address := entry.ServerRelativeURL()
	if src := d.read[address]; src != nil {
		d.used[address] = true
		return src, nil
	}
	data, err := entry.SchemaWithContext(ctx, runtime.ContentTypeJSON)
	if err != nil {
		return nil, fmt.Errorf("the OpenAPI document of %v: %w", gv, err)
	}
	if !strings.Contains(address, "hash=") {
		// If the address has no hash, the document is read every time.
		address = fmt.Sprintf("%s %x", address, sha256.Sum256(data))
		if src := d.read[address]; src != nil {
			d.used[address] = true
			return src, nil
		}
	}
	src, err := openapi.Document(gv, data)
	if err != nil {
		return nil, err
	}
	d.read[address], d.used[address] = src, true
	return src, nil
}

// done ends a round. It drops documents that the index no longer has, unless the index could not
// be read.
func (d *documents) done() {
	if d.err == nil {
		maps.DeleteFunc(d.read, func(address string, _ openapi.Source) bool { return !d.used[address] })
	}
	d.index, d.err, d.used = nil, nil, map[string]bool{}
}
