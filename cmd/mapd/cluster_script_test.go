package main

import (
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"slices"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/test/fakeapi"
)

// startCluster serves the objects of a file as a cluster does, and sets $KUBECONFIG:
// "cluster FILE [deny=RESOURCE]...". The user may not read the resources of deny.
func startCluster(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: cluster FILE [deny=RESOURCE]...")
	}
	s := &fakeapi.Server{}
	types := openapi.New(openapi.Builtin())
	more := map[schema.GroupVersionKind]openapi.Resource{}
	for doc := range strings.SplitSeq(ts.ReadFile(args[0]), "\n---\n") {
		u := &unstructured.Unstructured{}
		ts.Check(yaml.Unmarshal([]byte(doc), &u.Object))
		resource, ok := ownResources[u.GroupVersionKind()]
		if r, builtin := types.ResourceFor(u.GroupVersionKind()); builtin {
			resource, ok = r.GVR, true
		}
		if r, found := moreResources[u.GroupVersionKind()]; found {
			more[u.GroupVersionKind()] = r
			resource, ok = r.GVR, true
		}
		if !ok {
			ts.Fatalf("no resource of %s", u.GroupVersionKind())
		}
		s.Put(resource, u.GetNamespace(), u.GetName(), u.Object)
	}
	s.Discovery = discoveryOfBuiltins(slices.Collect(maps.Values(more))...)
	s.Intercept = func(r fakeapi.Request) (map[string]any, error) {
		if slices.Contains(args[1:], "deny="+r.Resource.Resource) {
			return nil, forbidden(r)
		}
		return nil, nil
	}
	h := httptest.NewServer(s)
	ts.Defer(h.Close)
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: here
clusters:
- {name: here, cluster: {server: %q}}
contexts:
- {name: here, context: {cluster: here, user: me}}
users:
- {name: me, user: {token: secret}}
`, h.URL)
	ts.Check(os.WriteFile(ts.MkAbs("kubeconfig"), []byte(config), 0o600))
	ts.Setenv("KUBECONFIG", ts.MkAbs("kubeconfig"))
}

func forbidden(r fakeapi.Request) error {
	return apierrors.NewForbidden(r.Resource.GroupResource(), r.Name, fmt.Errorf("user may not %s", r.Verb))
}

var ownResources = map[schema.GroupVersionKind]schema.GroupVersionResource{
	api.OwnPolicies.GroupVersion().WithKind(api.PolicyKind):  api.OwnPolicies,
	api.OwnBindings.GroupVersion().WithKind(api.BindingKind): api.OwnBindings,
}

// moreResources are in the discovery of clusters whose file has such an object: exceptions, and
// what is Kyverno's.
var moreResources = map[schema.GroupVersionKind]openapi.Resource{
	api.Exceptions.GroupVersion().WithKind(api.ExceptionKind): {GVR: api.Exceptions, Kind: api.Exceptions.GroupVersion().WithKind(api.ExceptionKind), Namespaced: true},
}

func init() {
	add := func(group, version, resource, kind string, namespaced bool) {
		gv := schema.GroupVersion{Group: group, Version: version}
		moreResources[gv.WithKind(kind)] = openapi.Resource{GVR: gv.WithResource(resource), Kind: gv.WithKind(kind), Namespaced: namespaced}
	}
	add("kyverno.io", "v1", "clusterpolicies", "ClusterPolicy", false)
	add("kyverno.io", "v1", "policies", "Policy", true)
	add("policies.kyverno.io", "v1beta1", "mutatingpolicies", "MutatingPolicy", false)
}

// discoveryOfBuiltins answers what kinds there are: those of Kubernetes and of mapd, and more.
func discoveryOfBuiltins(more ...openapi.Resource) map[string]map[string]any {
	type group struct{ versions []string }
	groups := map[string]*group{}
	lists := map[schema.GroupVersion][]any{}
	add := func(r openapi.Resource) {
		gv := r.GVR.GroupVersion()
		if lists[gv] == nil {
			if groups[gv.Group] == nil {
				groups[gv.Group] = &group{}
			}
			groups[gv.Group].versions = append(groups[gv.Group].versions, gv.Version)
		}
		lists[gv] = append(lists[gv], map[string]any{
			"name": r.GVR.Resource, "kind": r.Kind.Kind, "namespaced": r.Namespaced, "verbs": []any{"list", "get", "create", "update", "patch"},
		})
	}
	for _, r := range openapi.New(openapi.Builtin()).Resources() {
		if !strings.HasSuffix(r.GVR.Resource, "reviews") {
			add(r)
		}
	}
	for _, r := range more {
		add(r)
	}
	for gvk, gvr := range ownResources {
		add(openapi.Resource{GVR: gvr, Kind: gvk})
	}
	out := map[string]map[string]any{
		"/version": {"major": "1", "minor": "37", "gitVersion": "v1.37.1"},
		"/api":     {"kind": "APIVersions", "versions": []any{"v1"}},
	}
	var all []any
	for name, g := range groups {
		if name == "" {
			continue
		}
		slices.SortFunc(g.versions, func(a, b string) int { return len(a) - len(b) }) // v1 before v1beta1
		var versions []any
		for _, v := range g.versions {
			versions = append(versions, map[string]any{"groupVersion": name + "/" + v, "version": v})
		}
		all = append(all, map[string]any{"name": name, "versions": versions, "preferredVersion": versions[0]})
	}
	out["/apis"] = map[string]any{"kind": "APIGroupList", "groups": all}
	for gv, resources := range lists {
		path := "/apis/" + gv.String()
		if gv.Group == "" {
			path = "/api/" + gv.Version
		}
		out[path] = map[string]any{"kind": "APIResourceList", "groupVersion": gv.String(), "resources": resources}
	}
	return out
}
