package policy

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

type celRequest struct {
	kind     schema.GroupVersionKind
	resource schema.GroupVersionResource
	value    map[string]any
}

type validatedKey struct{ kind schema.GroupVersionKind }

// Matches evaluates the policy's match conditions.
func (p *Policy) Matches(ctx context.Context, in Input) (Match, error) { return Match{OK: true}, nil }
