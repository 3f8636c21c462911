package binding_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/binding"
)

func TestStoredNamespace(t *testing.T) {
	for name, tc := range map[string]struct{ given, want string }{
		"name only": {
			`{"metadata": {"name": "a"}}`,
			`{"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}`,
		},
		"other fields stay": {
			`{"metadata": {"name": "a", "labels": {"b": "c", "kubernetes.io/metadata.name": "wrong"}}, "spec": {"finalizers": ["x"]}, "status": {"conditions": []}}`,
			`{"metadata": {"name": "a", "labels": {"b": "c", "kubernetes.io/metadata.name": "a"}}, "spec": {"finalizers": ["x", "kubernetes"]}, "status": {"conditions": [], "phase": "Active"}}`,
		},
		"of a server": {
			`{"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}`,
			`{"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}`,
		},
		"being deleted": {
			`{"metadata": {"name": "a", "deletionTimestamp": "2026-01-02T03:04:05Z"}, "spec": {"finalizers": ["kubernetes"]}}`,
			`{"metadata": {"name": "a", "deletionTimestamp": "2026-01-02T03:04:05Z", "labels": {"kubernetes.io/metadata.name": "a"}}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Terminating"}}`,
		},
		"empty": {
			`{"metadata": {"name": "a"}, "status": {"phase": "Terminating"}}`,
			`{"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}}, "spec": {}, "status": {"phase": "Terminating"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var given, before, want map[string]any
			for _, of := range []struct {
				text string
				into *map[string]any
			}{{tc.given, &given}, {tc.given, &before}, {tc.want, &want}} {
				if err := json.Unmarshal([]byte(of.text), of.into); err != nil {
					t.Fatal(err)
				}
			}
			got := binding.StoredNamespace(&unstructured.Unstructured{Object: given})
			if diff := cmp.Diff(want, got.Object); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if diff := cmp.Diff(before, given); diff != "" {
				t.Errorf("the input changed\n%s", diff)
			}
		})
	}
}
