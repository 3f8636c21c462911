// Package expansion answers one question: what will become of the objects that this
// object creates?
//
// Package expand says which objects a workload will create. Here each of them goes
// the way of a real one: it gets the defaults that a server fills in, is admitted by
// the same engine as requests are, with the source policy.Generated, and is expanded
// in turn. Validators then judge what would be stored.
package expansion

import (
	"cmp"
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mapd-project/mapd/internal/apiserver/defaulting"
	"github.com/mapd-project/mapd/internal/apiserver/validating"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/legacy/expand"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Expander finds out what becomes of the objects that workloads create. It is safe
// for concurrent use if its fields are.
type Expander struct {
	Templates *expand.Set
	Types     *openapi.Types
	// Admit is the engine's.
	Admit func(ctx context.Context, req *policy.Request) *engine.Decision
	// Validators judge each object that is admitted, in this order.
	Validators []Validator
	// Advisory is the name of a stage that runs what others will really run, with their
	// rights and bounds. That it refuses an object denies no workload.
	Advisory string
	// Raw takes objects as they are: without schemas and without a server's defaults.
	Raw bool
	// Lenient takes an object as it is that a server would not accept, which mutators
	// alone can do with. Otherwise it is not admitted, see Object.Err.
	Lenient bool
	Limits  expand.Limits
}

// Object is one that a workload will create.
type Object struct {
	*expand.Object
	// Request is the one with which a controller will create it, as far as that can be
	// known. Its object has the defaults that a server fills in.
	Request *policy.Request
	// Kind is that by whose schema the object was read, nil if it was taken as it is.
	Kind *openapi.Kind
	// Err says why a server would not take the object even before admission. There is
	// no Decision then.
	Err      error
	Decision *engine.Decision
	// Stored is Made with the changes of the policies, without the defaults that a
	// server fills in; nil if the object is refused.
	Stored     *unstructured.Unstructured
	Violations []validating.Violation

	advisory bool // an advisory stage refuses the object
}

// Refused reports whether the policies, or the server itself, refuse the object.
func (o *Object) Refused() bool { return o.Stored == nil }

// Expands reports whether objects of a kind are expanded at all.
func (x *Expander) Expands(gvk schema.GroupVersionKind) bool { return len(x.Templates.For(gvk)) > 0 }

// Evaluate returns the objects that a workload will create, in the order of
// expand.Set.Expand. req is the request for the workload, and workload is its object
// after admission; neither is modified. An error says why the workload cannot be
// expanded; what a refused object would have created is left out.
func (x *Expander) Evaluate(ctx context.Context, req *policy.Request, workload *unstructured.Unstructured) ([]*Object, error) {
	if req.SubResource != "" || !x.Expands(workload.GroupVersionKind()) {
		return nil, nil
	}
	e := evaluation{Expander: x, ctx: ctx, req: req, objects: map[*expand.Object]*Object{}}
	o := expand.Options{Admit: e.admit, Limits: x.Limits}
	if req.Namespace != "" {
		o.Namespace = &req.Namespace
	}
	made, err := x.Templates.Expand(workload, o)
	if err != nil {
		return nil, err
	}
	out := make([]*Object, len(made))
	for i, o := range made {
		out[i] = e.objects[o]
	}
	return out, nil
}

// evaluation is one call of Evaluate.
type evaluation struct {
	*Expander
	ctx     context.Context
	req     *policy.Request // of the workload
	objects map[*expand.Object]*Object
}

// admit implements expand.Options.Admit.
func (e *evaluation) admit(made *expand.Object) (*unstructured.Unstructured, bool, error) {
	if err := e.interrupted(); err != nil {
		return nil, false, err
	}
	o := &Object{Object: made}
	e.objects[made] = o
	settled, err := e.settle(o)
	if err != nil {
		o.Err = err
		return nil, false, nil
	}
	if err := e.req.Memory.Charge(int64(made.Size)); err != nil {
		return nil, false, err
	}
	o.Request = e.request(o, settled)
	o.Decision = e.Admit(e.ctx, o.Request)
	if err := e.interrupted(); err != nil {
		return nil, false, err
	}
	if o.Decision.Status != nil {
		r := o.Decision.Stage(e.Advisory)
		o.advisory = r != nil && r.Status != nil
		return nil, false, nil
	}
	o.Stored = o.replay()
	for _, v := range e.Validators {
		o.Violations = append(o.Violations, v.Validate(e.ctx, o)...)
	}
	if err := e.interrupted(); err != nil {
		return nil, false, err
	}
	return o.Stored, true, nil
}

// interrupted returns why the evaluation has to end. What was decided in the end may say
// that only, and nothing of the object.
func (e *evaluation) interrupted() error {
	if refused := e.req.Memory.Refused(); refused != nil {
		return refused
	}
	if e.ctx.Err() != nil {
		return context.Cause(e.ctx)
	}
	return nil
}

// settle returns an object as a server holds it when admission begins.
func (e *evaluation) settle(o *Object) (*unstructured.Unstructured, error) {
	if e.Raw {
		return o.Made, nil
	}
	o.Kind, _ = e.Types.Kind(o.Made.GroupVersionKind())
	if o.Kind == nil {
		return o.Made, nil
	}
	settled, err := o.decode(o.Made.Object)
	switch {
	case err == nil:
		return &unstructured.Unstructured{Object: settled}, nil
	case e.Lenient:
		o.Kind = nil
		return o.Made, nil
	default:
		return nil, err
	}
}

// decode returns an object of o's kind with its defaults, in canonical form.
func (o *Object) decode(obj map[string]any) (map[string]any, error) {
	if o.Kind == nil {
		return obj, nil
	}
	obj, _ = defaulting.Apply(obj)
	return o.Kind.Normalize(obj)
}

// replay makes on Made the change that the policies made on the request's object.
func (o *Object) replay() *unstructured.Unstructured {
	if !o.Decision.Changed {
		return o.Made
	}
	after := manifest.ReplayProven(o.Made.Object, o.Request.Object.Object, o.Decision.Object.Object, o.decode)
	return &unstructured.Unstructured{Object: after}
}

// request returns the request that creates an object. What a controller would send
// that the workload does not tell is the workload's: its user, and that it is a dry
// run.
func (e *evaluation) request(o *Object, settled *unstructured.Unstructured) *policy.Request {
	gvk := settled.GroupVersionKind()
	res, known := e.Types.ResourceFor(gvk)
	if !known {
		plural, _ := meta.UnsafeGuessKindToResource(gvk)
		res = openapi.Resource{GVR: plural, Kind: gvk, Namespaced: settled.GetNamespace() != ""}
	}
	namespace := ""
	switch {
	case res.Namespaced:
		namespace = cmp.Or(settled.GetNamespace(), e.req.Namespace)
	case gvk == schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}:
		namespace = settled.GetName()
	}
	options := map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "CreateOptions"}
	if e.req.DryRun {
		options["dryRun"] = []any{"All"}
	}
	return &policy.Request{
		UID:  types.UID(fmt.Sprintf("%s/%d", e.req.UID, len(e.objects))),
		Kind: gvk, Resource: res.GVR, RequestKind: gvk, RequestResource: res.GVR,
		Name: settled.GetName(), Namespace: namespace, Operation: admissionv1.Create,
		UserInfo: e.req.UserInfo, DryRun: e.req.DryRun, Options: options,
		Source: policy.Generated, Object: settled, Memory: e.req.Memory,
	}
}
