package audit

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/api"
)

// Cluster reads the objects of a cluster. It is safe for concurrent use.
type Cluster struct {
	// Dynamic is the client for single objects.
	Dynamic dynamic.Interface
	// Resources are those that can be listed, in every version that is served.
	Resources []Resource
	// Notes say which groups could not be discovered.
	Notes []string

	client rest.Interface
}

// Installation returns the namespace in which mapd is installed, according to mapd's
// ValidatingWebhookConfiguration; "" if the cluster does not serve PolicyExceptions, or if the
// configuration cannot be read.
func (c *Cluster) Installation(ctx context.Context) string {
	if _, ok := c.Serves(api.ExceptionGroup, api.ExceptionKind, api.ExceptionVersion); !ok {
		return ""
	}
	configurations := admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations")
	found, err := c.Dynamic.Resource(configurations).Get(ctx, webhookconfig.ValidationName, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return webhookconfig.InstallationOf(metav1.ObjectMeta{Annotations: found.GetAnnotations(), OwnerReferences: found.GetOwnerReferences()}).Namespace
}

// discoveryQPS is as in kubectl.
const discoveryQPS = 300

// Resource is a resource in one version.
type Resource struct {
	GVR        schema.GroupVersionResource
	GVK        schema.GroupVersionKind
	Namespaced bool
	// Names are further names that kubectl accepts: the singular and short names.
	Names []string
	// Preferred: the version is the one that its group prefers.
	Preferred bool
	// Subresources are the names of the subresources that can be written.
	Subresources []string
}

// Connect discovers what a cluster serves. It uses the rate limits of config; after an answer of
// 429, clients wait as long as it says.
func Connect(ctx context.Context, config *rest.Config) (*Cluster, error) {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	if config.RateLimiter == nil && config.QPS > 0 { // shared by all clients; otherwise each would make its own
		config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, max(1, config.Burst))
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	c := &Cluster{}
	if c.Dynamic, err = dynamic.NewForConfigAndClient(config, httpClient); err != nil {
		return nil, err
	}
	raw := rest.CopyConfig(config)
	raw.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	raw.AcceptContentTypes, raw.ContentType = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	if c.client, err = rest.UnversionedRESTClientForConfigAndClient(raw, httpClient); err != nil {
		return nil, err
	}
	// Without aggregated discovery there is one request for each group, so discovery has its own,
	// higher rate limit.
	find := rest.CopyConfig(config)
	find.RateLimiter, find.QPS, find.Burst = nil, discoveryQPS, discoveryQPS
	disco, err := discovery.NewDiscoveryClientForConfigAndClient(find, httpClient)
	if err != nil {
		return nil, err
	}
	return c, c.discover(ctx, disco)
}

func (c *Cluster) discover(ctx context.Context, disco *discovery.DiscoveryClient) error {
	groups, lists, err := disco.ServerGroupsAndResourcesWithContext(ctx)
	if err != nil && len(lists) == 0 {
		return err
	}
	if err != nil { // an aggregated server is down
		c.Notes = append(c.Notes, err.Error())
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
		subresources := map[string][]string{}
		for _, r := range list.APIResources {
			if parent, sub, ok := strings.Cut(r.Name, "/"); ok && (slices.Contains(r.Verbs, "create") || slices.Contains(r.Verbs, "update")) {
				subresources[parent] = append(subresources[parent], sub)
			}
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") && slices.Contains(r.Verbs, "list") {
				c.Resources = append(c.Resources, Resource{
					GVR: gv.WithResource(r.Name), GVK: gv.WithKind(r.Kind), Namespaced: r.Namespaced,
					Names:     append(slices.Clone(r.ShortNames), r.SingularName),
					Preferred: preferred[gv.String()], Subresources: subresources[r.Name],
				})
			}
		}
	}
	return nil
}

// Serves returns the resource of a kind in the first of versions that is served.
func (c *Cluster) Serves(group, kind string, versions ...string) (Resource, bool) {
	for _, version := range versions {
		for _, r := range c.Resources {
			if r.GVK == (schema.GroupVersionKind{Group: group, Version: version, Kind: kind}) {
				return r, true
			}
		}
	}
	return Resource{}, false
}

// Each calls f once for each object of a resource, page by page. If the continue token expires,
// the following pages have the present objects.
func (c *Cluster) Each(ctx context.Context, r Resource, f func(*unstructured.Unstructured) error) error {
	return c.each(ctx, r, query{}, f)
}

// EachLabelled is Each for the objects that a label selector selects.
func (c *Cluster) EachLabelled(ctx context.Context, r Resource, labels string, f func(*unstructured.Unstructured) error) error {
	return c.each(ctx, r, query{labels: labels}, f)
}

func (c *Cluster) each(ctx context.Context, r Resource, q query, f func(*unstructured.Unstructured) error) error {
	return c.all(ctx, r, q, func(item json.RawMessage) error {
		u, err := decode(item, r)
		if err != nil {
			return err
		}
		return f(u)
	})
}
