package audit

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/engine"
)

// Trace runs the policies on an object of a kind of the cluster, and keeps what the object
// was before and after each mutation. Policies in shadow run, too: see Enforced.
func (s *Set) Trace(ctx context.Context, a *Asking, r *Resource, u *unstructured.Unstructured) (*engine.Decision, error) {
	req := a.request(r, u)
	if req.Namespace != "" && slices.Contains(a.Exempt, req.Namespace) {
		return &engine.Decision{Object: req.Object}, nil
	}
	return a.admit(ctx, s.whole.With(func(o *engine.Options) { o.Trace = true }), req)
}

// Enforced reports whether a policy changes objects by that binding, and is not in another
// mode.
func (s *Set) Enforced(policy, binding string) bool {
	return s.modes[[2]string{policy, binding}] == ""
}
