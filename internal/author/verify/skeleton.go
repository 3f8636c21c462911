package verify

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/legacy"
	"github.com/mapd-project/mapd/pkg/openapi"
)

var namespaceKind = schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}

// common are kinds for mutators that apply to every kind, and kinds for
// requests that a mutator does not match.
var common = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Pod"},
	{Version: "v1", Kind: "ConfigMap"},
	namespaceKind,
	{Version: "v1", Kind: "Service"},
	{Version: "v1", Kind: "Secret"},
	{Group: "apps", Version: "v1", Kind: "Deployment"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
}

// kindsOf returns the kinds that a mutator applies to, in a fixed order, or a few common ones if
// it applies to all. It leaves out combinations of group, version and kind that are not among
// types, unless there are no others.
func kindsOf(m *legacy.Mutator, types *openapi.Types) []schema.GroupVersionKind {
	all := combinations(m, types)
	known := slices.DeleteFunc(slices.Clone(all), func(gvk schema.GroupVersionKind) bool {
		_, ok := types.ResourceFor(gvk)
		return !ok
	})
	if len(known) > 0 {
		return known
	}
	return all
}

func combinations(m *legacy.Mutator, types *openapi.Types) []schema.GroupVersionKind {
	about := func(gvk schema.GroupVersionKind) bool {
		return m.AppliesTo(gvk, create) || m.AppliesTo(gvk, update)
	}
	var out []schema.GroupVersionKind
	add := func(gvk schema.GroupVersionKind) {
		if about(gvk) && !slices.Contains(out, gvk) {
			out = append(out, gvk)
		}
	}
	for _, a := range m.ApplyTo {
		for _, group := range a.Groups {
			for _, version := range a.Versions {
				for _, kind := range a.Kinds {
					add(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
				}
			}
		}
	}
	if len(m.ApplyTo) > 0 {
		return out
	}
	for _, gvk := range common {
		add(gvk)
	}
	for _, k := range m.Match.Kinds {
		for _, group := range k.APIGroups {
			for _, kind := range k.Kinds {
				if group != "*" && kind != "*" {
					add(served(types, group, kind))
				}
			}
		}
	}
	return out
}

// served returns a kind in a version that types have, or in v1 if they do not have the kind.
func served(types *openapi.Types, group, kind string) schema.GroupVersionKind {
	for _, version := range []string{"v1", "v1beta1", "v1alpha1", "v2", "v1beta2", "v1alpha2"} {
		gvk := schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
		if _, ok := types.ResourceFor(gvk); ok {
			return gvk
		}
	}
	return schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
}

// Skeleton returns a minimal object of a kind. Pods and Pod templates have two containers.
func Skeleton(gvk schema.GroupVersionKind) map[string]any {
	obj := map[string]any{
		"apiVersion": gvk.GroupVersion().String(),
		"kind":       gvk.Kind,
		"metadata":   map[string]any{},
	}
	template := func() map[string]any {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": "web"}}, "spec": podSpec()}
	}
	selector := map[string]any{"matchLabels": map[string]any{"app": "web"}}
	switch (schema.GroupKind{Group: gvk.Group, Kind: gvk.Kind}) {
	case schema.GroupKind{Kind: "Pod"}:
		obj["spec"] = podSpec()
	case schema.GroupKind{Group: "apps", Kind: "Deployment"}, schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, schema.GroupKind{Group: "apps", Kind: "DaemonSet"}:
		obj["spec"] = map[string]any{"selector": selector, "template": template()}
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		obj["spec"] = map[string]any{"selector": selector, "serviceName": "web", "template": template()}
	case schema.GroupKind{Group: "batch", Kind: "Job"}, schema.GroupKind{Kind: "ReplicationController"}:
		obj["spec"] = map[string]any{"template": template()}
	case schema.GroupKind{Group: "batch", Kind: "CronJob"}:
		obj["spec"] = map[string]any{"schedule": "0 4 * * *", "jobTemplate": map[string]any{"spec": map[string]any{"template": template()}}}
	case schema.GroupKind{Kind: "Service"}:
		obj["spec"] = map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}
	case schema.GroupKind{Kind: "ConfigMap"}:
		obj["data"] = map[string]any{"key": "value"}
	}
	return obj
}

func podSpec() map[string]any {
	return map[string]any{"containers": []any{
		map[string]any{"name": "app", "image": "registry.example.com/shop/app:v1"},
		map[string]any{"name": "sidecar", "image": "nginx"},
	}}
}
