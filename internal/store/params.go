package store

import (
	"context"
	"log/slog"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/pkg/openapi"
)

// params are the objects that policies take as parameters.
type params struct{}

func newParams(client dynamic.Interface, types *openapi.Types, log *slog.Logger) *params {
	return &params{}
}

// Use says which kinds the policies name from now on.
func (p *params) Use(ctx context.Context, kinds []schema.GroupVersionKind) {}

// State tells how a kind in use is doing.
func (p *params) State(gvk schema.GroupVersionKind) ParamState { return ParamState{GVK: gvk} }

// OnChange registers a function to call when the State of a kind has changed.
func (p *params) OnChange(f func()) {}

// Kind implements binding.Params.
func (p *params) Kind(gvk schema.GroupVersionKind) (namespaced bool, err error) { return false, nil }

// Get implements binding.Params.
func (p *params) Get(ctx context.Context, gvk schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	return nil, nil
}

// List implements binding.Params.
func (p *params) List(ctx context.Context, gvk schema.GroupVersionKind, namespace string, sel labels.Selector) ([]*unstructured.Unstructured, error) {
	return nil, nil
}
