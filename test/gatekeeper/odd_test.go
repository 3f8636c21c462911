package gatekeeper

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What no server lets through, and what nobody writes, mapd may do otherwise: rows
// gk-odd-labels and gk-becomes-namespace of docs/reference/compat.md.
func TestOdd(t *testing.T) {
	pods := []any{map[string]any{"groups": []any{""}, "versions": []any{"v1"}, "kinds": []any{"Pod"}}}
	value := func(v any) map[string]any { return map[string]any{"assign": map[string]any{"value": v}} }
	labelled := mutator("Assign", map[string]any{"applyTo": pods, "location": "spec.x", "parameters": value("here"),
		"match": map[string]any{"labelSelector": map[string]any{"matchLabels": map[string]any{"team": "a"}}}})
	becomes := mutator("Assign", map[string]any{"applyTo": pods, "location": "kind", "parameters": value("Namespace")})
	where := mutator("AssignMetadata", map[string]any{"location": "metadata.labels.in",
		"parameters": map[string]any{"assign": map[string]any{"fromMetadata": map[string]any{"field": "namespace"}}}})
	for _, c := range []struct {
		name         string
		mutators     []*unstructured.Unstructured
		labels       map[string]any
		at           []string
		theirs, ours any
	}{
		{"labels that are not strings", []*unstructured.Unstructured{labelled}, map[string]any{"team": "a", "build": int64(7)}, []string{"spec", "x"}, nil, "here"},
		{"a Pod that becomes a Namespace", []*unstructured.Unstructured{becomes, where}, map[string]any{}, []string{"metadata", "labels", "in"}, "shop", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, m := range c.mutators {
				m.SetName("a")
			}
			s := take(t, NewComparison(), c.mutators, nil)
			r := Request{Namespace: "shop", Operation: "CREATE", Source: "Original",
				Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": map[string]any{},
					"metadata": map[string]any{"name": "p", "namespace": "shop", "labels": c.labels}},
				NamespaceObject: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}}}
			theirs, err := s.Gatekeeper.Mutate(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			ours, err := s.Runtime.Mutate(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			for side, got := range map[string]struct {
				result Result
				want   any
			}{"Gatekeeper": {theirs, c.theirs}, "mapd": {ours, c.ours}} {
				if v, _, _ := unstructured.NestedFieldNoCopy(got.result.Object, c.at...); v != got.want {
					t.Errorf("%s: %v = %v, want %v (%s)", side, c.at, v, got.want, got.result.Error)
				}
			}
		})
	}
}
