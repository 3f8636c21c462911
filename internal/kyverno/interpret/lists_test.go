package interpret

import (
	"slices"
	"strings"
	"testing"

	kustomize "sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/mapd-project/mapd/pkg/openapi"
)

// The lists with keys are those of the schemas that kustomize, and with it Kyverno, merges by.
func TestLists(t *testing.T) {
	lists, keyed := 0, 0
	for _, r := range openapi.New(openapi.Builtin()).Resources() {
		apiVersion, kind := r.Kind.ToAPIVersionAndKind()
		schema := kustomize.SchemaForResourceType(yaml.TypeMeta{APIVersion: apiVersion, Kind: kind})
		if schema == nil {
			for _, path := range []string{"metadata.finalizers", "spec.ports", "webhooks"} {
				if _, ok := keysAt(r.Kind, strings.Split(path, ".")); ok {
					t.Errorf("%s: kustomize does not know the kind, and replaces %s", r.Kind, path)
				}
			}
			continue
		}
		walkLists(schema, nil, func(path []string, strategy string, keys []string) {
			if path[0] == "status" { // is dropped
				return
			}
			lists++
			merges := slices.Contains(strings.Split(strategy, ","), "merge")
			if merges {
				keyed++
			}
			got, ok := keysAt(r.Kind, path)
			if ok != merges || ok && !slices.Equal(got, keys) && (len(got) > 0 || len(keys) > 0) {
				t.Errorf("%s %s: kustomize has the keys %v (%v), the table %v (%v)", r.Kind, strings.Join(path, "."), keys, merges, got, ok)
			}
		})
	}
	if lists < 1000 || keyed < 100 {
		t.Errorf("%d lists, of which %d have keys", lists, keyed)
	}
}

// walkLists calls f with each list below a schema.
func walkLists(s *kustomize.ResourceSchema, path []string, f func(path []string, strategy string, keys []string)) {
	if s == nil || s.Schema == nil || len(path) > 14 {
		return
	}
	if elements := s.Elements(); elements != nil {
		strategy, keys := s.PatchStrategyAndKeyList()
		f(path, strategy, keys)
		walkLists(elements, append(slices.Clip(path), "[]"), f)
		return
	}
	for name := range s.Schema.Properties {
		walkLists(s.Field(name), append(slices.Clip(path), name), f)
	}
}
