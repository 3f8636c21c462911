package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	"github.com/mapd-project/mapd/internal/manifest"
	"github.com/mapd-project/mapd/internal/verify"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

// liveCluster reads a cluster and writes nothing to it.
type liveCluster struct {
	client    dynamic.Interface
	resources []liveResource
	notes     []string // what could not be read
}

// liveResource is a resource that can be listed.
type liveResource struct {
	gvr       schema.GroupVersionResource
	gvk       schema.GroupVersionKind
	preferred bool // of its group's versions
}

// pageSize is how many objects one request lists, as in kubectl.
const pageSize = 500

// newLiveCluster discovers what a cluster serves.
func newLiveCluster(ctx context.Context, config *rest.Config) (*liveCluster, error) {
	config.WarningHandler = rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	c := &liveCluster{client: client}
	groups, lists, err := disco.ServerGroupsAndResourcesWithContext(ctx)
	if err != nil && len(lists) == 0 {
		return nil, err
	}
	if err != nil { // an aggregated server is down
		c.notes = append(c.notes, err.Error())
	}
	preferred := map[string]bool{}
	for _, g := range groups {
		preferred[g.PreferredVersion.GroupVersion] = true
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list") {
				c.resources = append(c.resources, liveResource{gv.WithResource(r.Name), gv.WithKind(r.Kind), preferred[gv.String()]})
			}
		}
	}
	return c, nil
}

// each calls f with the objects of a resource, page by page. Comparing takes
// time, and after some minutes a server forgets the state of the list; it then
// says how to continue with the present state.
func (c *liveCluster) each(ctx context.Context, gvr schema.GroupVersionResource, f func(*unstructured.Unstructured) error) error {
	p := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		list, err := c.client.Resource(gvr).List(ctx, opts)
		var status apierrors.APIStatus
		if opts.Continue != "" && apierrors.IsResourceExpired(err) && errors.As(err, &status) && status.Status().Continue != "" {
			opts.Continue = status.Status().Continue
			return c.client.Resource(gvr).List(ctx, opts)
		}
		return list, err
	})
	p.PageSize = pageSize
	p.PageBufferSize = 1
	err := p.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		return f(obj.(*unstructured.Unstructured))
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", gvr.GroupResource(), err)
	}
	return nil
}

// serves returns the version in which to read a kind.
func (c *liveCluster) serves(group, kind string, versions ...string) (schema.GroupVersionResource, bool) {
	for _, version := range versions {
		for _, r := range c.resources {
			if r.gvk == (schema.GroupVersionKind{Group: group, Version: version, Kind: kind}) {
				return r.gvr, true
			}
		}
	}
	return schema.GroupVersionResource{}, false
}

// readMutators reads the mutators and the Config. Every version of a mutator
// has the same content (Gatekeeper spec §1.1), so any served one will do.
func (c *liveCluster) readMutators(ctx context.Context, in *mutatorInput) error {
	add := func(u *unstructured.Unstructured) error { return in.add(u, nil) }
	for _, kind := range legacy.Kinds() {
		gvr, ok := c.serves(legacy.Group, string(kind), "v1", "v1beta1", "v1alpha1")
		if !ok {
			continue
		}
		if err := c.each(ctx, gvr, add); err != nil {
			return err
		}
	}
	if gvr, ok := c.serves(legacy.ConfigGroup, "Config", "v1alpha1"); ok {
		return c.each(ctx, gvr, add)
	}
	return nil
}

// readKinds reads the CustomResourceDefinitions, for the kinds of the cluster,
// and the Namespaces.
func (c *liveCluster) readKinds(ctx context.Context, in *mutatorInput) error {
	if gvr, ok := c.serves(api.DefinitionGroup, api.DefinitionKind, "v1"); ok {
		err := c.each(ctx, gvr, func(u *unstructured.Unstructured) error {
			source, err := openapi.Served(u, func(error) {}) // a kind without schema is as one that nobody knows
			if err == nil {
				in.sources = append(in.sources, source)
			} else {
				c.notes = append(c.notes, fmt.Sprintf("CustomResourceDefinition %s: %v", u.GetName(), err))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return c.each(ctx, schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, func(u *unstructured.Unstructured) error {
		in.namespaces[u.GetName()] = u.Object
		return nil
	})
}

// eachObject calls check with the cluster's objects of the kinds that mutators
// apply to. It notes what it leaves out and what it may not read.
func (c *liveCluster) eachObject(ctx context.Context, in *mutatorInput, check func(verify.Object)) (n int, notes []string, err error) {
	for _, r := range c.about(in.mutators) {
		err := c.each(ctx, r.gvr, func(u *unstructured.Unstructured) error {
			u.SetGroupVersionKind(r.gvk) // some servers leave it out of lists
			check(in.object(u, u.GetNamespace(), "live "+manifest.Name(u)))
			n++
			return ctx.Err()
		})
		switch {
		case err == nil:
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			c.notes = append(c.notes, "not compared: "+err.Error())
		default:
			return n, nil, err
		}
	}
	return n, c.notes, nil
}

// about returns the resources whose kinds mutators apply to. Mutators that name
// kinds also name their versions; for the others, every kind is read in one
// version, except Events, of which there are too many.
func (c *liveCluster) about(ms []*legacy.Mutator) []liveResource {
	var out []liveResource
	events := false
	for _, r := range c.resources {
		if strings.HasSuffix(r.gvk.Group, ".gatekeeper.sh") {
			continue
		}
		wanted := slices.ContainsFunc(ms, func(m *legacy.Mutator) bool {
			if len(m.ApplyTo) == 0 && (!r.preferred || r.gvk.Kind == "Event") {
				events = events || r.gvk.Kind == "Event"
				return false
			}
			return m.AppliesTo(r.gvk, "CREATE") || m.AppliesTo(r.gvk, "UPDATE")
		})
		if wanted {
			out = append(out, r)
		}
	}
	if events {
		c.notes = append(c.notes, "Events were not compared")
	}
	return out
}

// clusterError gives an error of reading a cluster its exit code:
// exitUnreachable, unless the cluster was read and its content makes no sense.
func clusterError(err error) error {
	code := exitUnreachable
	var invalid *legacy.Error
	if errors.As(err, &invalid) || errors.Is(err, context.Canceled) {
		code = exitUsage
	}
	return &codedError{code, fmt.Errorf("migrate gatekeeper: %w", err)}
}
