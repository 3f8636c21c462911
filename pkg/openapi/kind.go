package openapi

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	smdschema "sigs.k8s.io/structured-merge-diff/v6/schema"
)

type kindCache struct{ sync.Map }

type Kind struct{ gvk schema.GroupVersionKind }

func (t *Types) Kind(gvk schema.GroupVersionKind) (*Kind, error) { return &Kind{gvk: gvk}, nil }

func (k *Kind) Schema() (*smdschema.Schema, smdschema.TypeRef) { return nil, smdschema.TypeRef{} }
func (k *Kind) Builtin() bool                                  { return true }

type Decoding int

const (
	FromJSONPatch Decoding = iota
	FromApply
)

func (k *Kind) Settle(before, after map[string]any, from Decoding) (map[string]any, error) {
	return after, nil
}
func (k *Kind) Normalize(obj map[string]any) (map[string]any, error) { return obj, nil }
func (k *Kind) Validate(obj map[string]any) error                    { return nil }
