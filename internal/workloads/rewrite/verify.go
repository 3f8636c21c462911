package rewrite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/internal/apiserver/defaulting"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/policyset"
	"github.com/mapd-project/mapd/internal/workloads/expansion"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy/expand"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Comparison is the outcome of Verify.
type Comparison struct {
	// Workloads is how many were compared, and Changed and Refused how many of their
	// Pods the policy for Pods changed and refused. Invalid were not compared, because
	// a server would not take them.
	Workloads, Changed, Refused, Invalid int
	// First is nil if there is no difference.
	First *Difference
}

// Difference is a workload for which the policies do not do what the policy for Pods
// does.
type Difference struct {
	Workload *unstructured.Unstructured
	// Again says that the policies change their own result when the workload is updated.
	// Before and After are both results then, and otherwise the Pod by the policy for
	// Pods and the Pod by those for workloads.
	Again         bool
	Before, After *unstructured.Unstructured
	// Refused and RefusedAfter are why a side refuses the object, which it then lacks.
	Refused, RefusedAfter string
	Kind                  *openapi.Kind
}

// Verify runs the policy p, which is the one of pods, on the Pods of n generated
// workloads, and the rewritten policies on these workloads, and compares the Pods that
// there would be. The workloads are in the namespaces with these names, in turn. The
// same seed gives the same workloads.
func Verify(ctx context.Context, p *unstructured.Unstructured, pods, workloads *policyset.Snapshot, namespaces []string, seed uint64, n int) (*Comparison, error) {
	v := verifier{pods: pods.Engine(), workloads: workloads.Engine(), types: pods.Types}
	c := &Comparison{}
	words := mentioned(p)
	for i := range n {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		g := &generator{Rand: rand.New(rand.NewPCG(seed, uint64(i))), words: words}
		w := g.workload(i, pick(g, namespaces...))
		d, err := v.check(ctx, w, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", manifest.Name(w), err)
		}
		if d != nil {
			d.Workload = w
			c.First = d
			return c, nil
		}
	}
	return c, nil
}

type verifier struct {
	pods, workloads *engine.Engine
	types           *openapi.Types
}

// admitNothing lets everything pass.
func admitNothing(_ context.Context, req *policy.Request) *engine.Decision {
	return &engine.Decision{Object: req.Object}
}

// settled returns an object with a server's defaults, nil if a server would not take it.
func (v *verifier) settled(u *unstructured.Unstructured) *unstructured.Unstructured {
	kind, err := v.types.Kind(u.GroupVersionKind())
	if err != nil {
		return u
	}
	obj, _ := defaulting.Apply(u.Object)
	if obj, err = kind.Normalize(obj); err != nil {
		return nil
	}
	return &unstructured.Unstructured{Object: obj}
}

// pod returns the Pod that a workload creates, as admitted, or why it is refused.
func (v *verifier) pod(ctx context.Context, req *policy.Request, w *unstructured.Unstructured, admit func(context.Context, *policy.Request) *engine.Decision) (*unstructured.Unstructured, string, error) {
	x := expansion.Expander{Templates: expand.New(nil), Types: v.types, Admit: func(ctx context.Context, req *policy.Request) *engine.Decision {
		if req.Kind.Kind != "Pod" {
			return admitNothing(ctx, req)
		}
		return admit(ctx, req)
	}}
	made, err := x.Evaluate(ctx, req, w)
	if err != nil {
		return nil, "", err
	}
	i := slices.IndexFunc(made, func(o *expansion.Object) bool { return o.Made.GetKind() == "Pod" })
	switch {
	case i < 0:
		return nil, "", fmt.Errorf("creates no Pod")
	case made[i].Err != nil:
		return nil, made[i].Err.Error(), nil
	case made[i].Decision.Status != nil:
		return nil, made[i].Decision.Status.Message, nil
	}
	return v.settled(made[i].Decision.Object), "", nil
}

func (v *verifier) check(ctx context.Context, w *unstructured.Unstructured, c *Comparison) (*Difference, error) {
	given := v.settled(w)
	if given == nil {
		c.Invalid++
		return nil, nil
	}
	req, err := policy.NewRequest(v.types, admissionv1.Create, given)
	if err != nil {
		return nil, err
	}
	plain, invalid, err := v.pod(ctx, req, given, admitNothing)
	if err != nil {
		return nil, err
	}
	if invalid != "" || plain == nil {
		c.Invalid++
		return nil, nil
	}
	c.Workloads++
	want, refused, err := v.pod(ctx, req, given, v.pods.Admit)
	if err != nil {
		return nil, err
	}
	kind, _ := v.types.Kind(plain.GroupVersionKind())
	d := &Difference{Before: want, Refused: refused, Kind: kind}
	decision := v.workloads.Admit(ctx, req)
	if decision.Status != nil {
		d.RefusedAfter = decision.Status.Message
	} else if d.After, d.RefusedAfter, err = v.pod(ctx, req, decision.Object, admitNothing); err != nil {
		return nil, err
	}
	switch {
	case (d.Refused != "") != (d.RefusedAfter != ""):
		return d, nil
	case d.Refused != "":
		c.Refused++
		return nil, nil
	case want == nil || d.After == nil || !tree.Equal(want.Object, d.After.Object):
		return d, nil
	}
	if !tree.Equal(want.Object, plain.Object) {
		c.Changed++
	}
	return v.again(ctx, decision.Object)
}

// again sends what the policies made of a workload once more, as everybody does who
// changes one field of it.
func (v *verifier) again(ctx context.Context, w *unstructured.Unstructured) (*Difference, error) {
	stored := v.settled(w)
	if stored == nil {
		return nil, fmt.Errorf("the result is no valid object")
	}
	req, err := policy.NewRequest(v.types, admissionv1.Update, stored)
	if err != nil {
		return nil, err
	}
	req.OldObject = stored
	decision := v.workloads.Admit(ctx, req)
	d := &Difference{Again: true, Before: stored}
	d.Kind, _ = v.types.Kind(stored.GroupVersionKind())
	if decision.Status != nil {
		d.RefusedAfter = decision.Status.Message
		return d, nil
	}
	if d.After = v.settled(decision.Object); d.After == nil || !tree.Equal(stored.Object, d.After.Object) {
		return d, nil
	}
	return nil, nil
}
