package promote

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/mapd-project/mapd/internal/gatekeeper/nativepolicies"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Bounds of what is read of a cluster for the checks of a policy.
const (
	maxNamespaces = 500
	maxParams     = 200
	maxResources  = 16
)

// served is what a server serves.
type served struct {
	minor     int
	versions  map[string][]string // of a group
	resources []servedResource
}

type servedResource struct {
	gvr  schema.GroupVersionResource
	kind string
	list bool
}

func (p *Promoter) discover(ctx context.Context) (*served, error) {
	info, err := discovery.ToDiscoveryInterfaceWithContext(p.Kubernetes.Discovery()).ServerVersionWithContext(ctx)
	if err != nil {
		return nil, err
	}
	s := &served{versions: map[string][]string{}}
	digits := strings.TrimRight(info.Minor, "+")
	minor, err := strconv.Atoi(digits)
	if err != nil {
		return nil, fmt.Errorf("the server's version %q cannot be read", info.Major+"."+info.Minor)
	}
	s.minor = minor
	groups, lists, err := discovery.ToDiscoveryInterfaceWithContext(p.Kubernetes.Discovery()).ServerGroupsAndResourcesWithContext(ctx)
	if len(lists) == 0 && err != nil { // a group whose aggregated server does not answer does not matter
		return nil, err
	}
	for _, g := range groups {
		for _, v := range g.Versions {
			s.versions[g.Name] = append(s.versions[g.Name], v.Version)
		}
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			s.resources = append(s.resources, servedResource{gv.WithResource(r.Name), r.Kind, slices.Contains(r.Verbs, "list")})
		}
	}
	return s, nil
}

// Gather reads what the checks of a policy need. It notes what could not be read.
func (p *Promoter) Gather(ctx context.Context, w *World, to Direction, sample int) (*Subject, []string, error) {
	group := api.OwnGroup
	if to == Mapd && w.Objects[nativepolicies.Key{Group: group, Name: w.Policy}] == nil || w.Objects[nativepolicies.Key{Group: api.OwnGroup, Name: w.Policy}] == nil {
		group = api.NativeGroup
	}
	of := w.Objects[nativepolicies.Key{Group: group, Name: w.Policy}]
	if of == nil {
		return nil, nil, errNoPolicy
	}
	kinds, err := p.discover(ctx)
	if err != nil {
		return nil, nil, err
	}
	s := &Subject{Direction: to, Policy: of.Unstructured, Minor: kinds.minor, Exempt: p.Exempt, Versions: kinds.versions, Excepted: w.Excepted}
	for k, o := range w.Objects {
		if k.Group == group && k.Binding && Of(o.Unstructured) == w.Policy {
			s.Bindings = append(s.Bindings, o.Unstructured)
		}
	}
	slices.SortFunc(s.Bindings, func(a, b *unstructured.Unstructured) int { return strings.Compare(a.GetName(), b.GetName()) })
	typed, err := policy.Decode(of.Unstructured)
	if err != nil {
		return s, nil, nil // a check reports the error
	}
	var notes []string
	note := func(what string, err error) { notes = append(notes, fmt.Sprintf("%s not read: %v", what, err)) }
	all, err := listAll(ctx, p.Dynamic.Resource(api.OwnPolicies))
	if err != nil {
		note("the other policies of mapd are", err)
	}
	for _, o := range all {
		if o.GetName() != w.Policy && o.GetLabels()[probeLabel] == "" {
			s.Others++
		}
	}
	read := func(r schema.GroupVersionResource, kind string, most int) []*unstructured.Unstructured {
		list, err := p.Dynamic.Resource(r).List(ctx, metav1.ListOptions{Limit: int64(most)})
		if err != nil {
			note(r.GroupResource().String()+" are", err)
			return nil
		}
		var out []*unstructured.Unstructured
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(r.GroupVersion().WithKind(kind)) // some servers leave it out of lists
			out = append(out, &list.Items[i])
		}
		return out
	}
	s.Context = read(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "Namespace", maxNamespaces)
	if k := typed.Spec.ParamKind; k != nil {
		s.ParamKindMissing = true
		for _, r := range kinds.resources {
			if r.gvr.GroupVersion().String() == k.APIVersion && r.kind == k.Kind && !strings.Contains(r.gvr.Resource, "/") {
				s.ParamKindMissing = false
				s.Context = append(s.Context, p.definition(ctx, r.gvr)...)
				if k.APIVersion != "v1" || k.Kind != "Namespace" {
					s.Context = append(s.Context, read(r.gvr, r.kind, maxParams)...)
				}
			}
		}
	}
	matched := kinds.matching(typed.Spec.MatchConstraints)
	for _, r := range matched[:min(len(matched), maxResources)] {
		s.Context = append(s.Context, p.definition(ctx, r.gvr)...)
		if sample > 0 {
			s.Live = append(s.Live, read(r.gvr, r.kind, max(1, sample/min(len(matched), maxResources)))...)
		}
	}
	return s, notes, ctx.Err()
}

// matching returns the resources that rules name and that can be listed.
func (s *served) matching(m *admissionregistrationv1.MatchResources) (out []servedResource) {
	if m == nil {
		return nil
	}
	has := func(list []string, name string) bool {
		return slices.Contains(list, name) || slices.Contains(list, "*")
	}
	for _, r := range s.resources {
		if r.list && !api.IsAdmission(r.gvr.Group) && !strings.Contains(r.gvr.Resource, "/") && slices.ContainsFunc(m.ResourceRules, func(rule admissionregistrationv1.NamedRuleWithOperations) bool {
			return has(rule.APIGroups, r.gvr.Group) && has(rule.APIVersions, r.gvr.Version) && (has(rule.Resources, r.gvr.Resource) || slices.Contains(rule.Resources, "*/*"))
		}) {
			out = append(out, r)
		}
	}
	return out
}

// definition returns the CustomResourceDefinition of a resource, if it has one.
func (p *Promoter) definition(ctx context.Context, r schema.GroupVersionResource) []*unstructured.Unstructured {
	if builtinGroup(r.Group) {
		return nil
	}
	u, err := p.Dynamic.Resource(schema.GroupVersionResource{Group: api.DefinitionGroup, Version: "v1", Resource: "customresourcedefinitions"}).
		Get(ctx, r.Resource+"."+r.Group, metav1.GetOptions{})
	if err != nil { // the kind is of an aggregated server, or may not be read: objects are used without its schema
		return nil
	}
	return []*unstructured.Unstructured{u}
}

// Policies returns the names of the policies that can be moved in a direction.
func (p *Promoter) Policies(ctx context.Context, to Direction) ([]string, error) {
	names := map[string]bool{}
	own, err := listAll(ctx, p.Dynamic.Resource(api.OwnPolicies))
	if err != nil {
		return nil, err
	}
	for _, u := range own {
		if u.GetLabels()[nativepolicies.LiveLabel] == "" && u.GetLabels()[probeLabel] == "" && (to == Native || isMoving(u)) {
			names[u.GetName()] = true
		}
	}
	if to == Mapd {
		promoted, err := p.Dynamic.Resource(api.NativePolicies).List(ctx, metav1.ListOptions{LabelSelector: fromLabel + "=" + api.OwnGroup})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if promoted != nil {
			for _, u := range promoted.Items {
				names[u.GetName()] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}
