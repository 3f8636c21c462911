// Package featuretest has helpers for tests of features: dependencies without a cluster, and
// objects as a watch would return them.
package featuretest

import (
	"context"
	"log/slog"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/mapd-project/mapd/internal/cluster/feature"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Deps returns dependencies with the built-in kinds and a Namespace of every name.
func Deps(t testing.TB) feature.Deps {
	t.Helper()
	env, err := cel.NewEnv(cel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return feature.Deps{
		Log: slog.New(slog.DiscardHandler), Policy: policy.Deps{Env: env, Types: openapi.New(openapi.Builtin())},
		Sources: binding.Sources{Namespaces: namespaces{}}, Changed: func() {}, Own: none{},
	}
}

// namespaces implements a lookup in which every Namespace exists and has no labels.
type namespaces struct{}

func (namespaces) Namespace(_ context.Context, name string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	u.SetName(name)
	return u, nil
}

// none implements feature.Own for a server that does not serve mapd's group.
type none struct{}

func (none) Each(func(*unstructured.Unstructured, []byte)) (served, read bool) { return false, true }
func (none) Called() func(string) bool                                         { return func(string) bool { return false } }
func (none) Routed(string, *admissionregistrationv1.MutatingWebhook) bool      { return true }
func (none) Base() (base admissionregistrationv1.MutatingWebhook)              { return base }
func (none) Follow()                                                           {}

// Parse returns the object in a YAML text.
func Parse(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return u
}

// Put replaces the content of a mirror.
func Put(t testing.TB, m interface{ Replace([]any, string) error }, objects ...*unstructured.Unstructured) {
	t.Helper()
	var all []any
	for _, o := range objects {
		all = append(all, o)
	}
	if err := m.Replace(all, ""); err != nil {
		t.Fatal(err)
	}
}
