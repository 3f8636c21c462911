package audit

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/engine"
)

// Trace runs the policies on an object of a kind of the cluster, and keeps what the object
// was before and after each mutation.
func (s *Set) Trace(ctx context.Context, a *Asking, r *Resource, u *unstructured.Unstructured) (*engine.Decision, error) {
	req := a.request(r, u)
	if req.Namespace != "" && slices.Contains(a.Exempt, req.Namespace) {
		return &engine.Decision{Object: req.Object}, nil
	}
	return a.admit(ctx, s.whole.With(func(o *engine.Options) { o.Trace = true }), req)
}
