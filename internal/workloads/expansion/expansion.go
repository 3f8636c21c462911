// Package expansion answers one question: what will happen to the objects that this object
// creates?
//
// pkg/legacy/expand determines which objects a workload will create. This package treats each of
// them like a real object: it gets a server's defaults, is admitted by the same engine as
// requests, with the source policy.Generated, and is expanded in turn. Validators then check what
// would be stored. Start reading at Expander.Evaluate.
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

// Expander determines what happens to the objects that workloads create. It is safe for
// concurrent use if its fields are.
type Expander struct {
	Templates *expand.Set
	Types     *openapi.Types
	// Admit runs the policies; it is the engine's Admit.
	Admit func(ctx context.Context, req *policy.Request) *engine.Decision
	// Validators check each admitted object, in this order.
	Validators []Validator
	// Advisory is the name of a stage that predicts what another component does with its own
	// rights and bounds. If it refuses an object, the workload is not denied.
	Advisory string
	// Raw uses objects as they are, without schemas and without a server's defaults.
	Raw bool
	// Lenient admits objects that a server would not accept, as they are. That is enough for
	// mutators. Otherwise they are not admitted, see Object.Err.
	Lenient bool
	Limits  expand.Limits
}

// Object is an object that a workload will create.
type Object struct {
	*expand.Object
	// Request is the request by which a controller will create the object, as far as that is
	// known. Its object has a server's defaults.
	Request *policy.Request
	// Kind is the kind whose schema was applied to the object, nil if the object was used as it
	// is.
	Kind *openapi.Kind
	// Err is the reason why a server would not accept the object even before admission. There is
	// no Decision then.
	Err      error
	Decision *engine.Decision
	// Stored is Made with the changes of the policies, but without a server's defaults; nil if
	// the object is refused.
	Stored     *unstructured.Unstructured
	Violations []validating.Violation

	advisory bool // an advisory stage refuses the object
}

// Refused reports whether the policies, or the server itself, refuse the object.
func (o *Object) Refused() bool { return o.Stored == nil }

// Expands reports whether objects of a kind are expanded at all.
func (x *Expander) Expands(gvk schema.GroupVersionKind) bool { return len(x.Templates.For(gvk)) > 0 }

// Evaluate returns the objects that a workload will create, in the order of expand.Set.Expand.
// req is the request for the workload, and workload is its object after admission; neither is
// modified. It returns an error if the workload cannot be expanded. The objects that a refused
// object would create are left out.
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

// interrupted returns the cause if the evaluation has to end, because the last decision may then
// be wrong.
func (e *evaluation) interrupted() error {
	if refused := e.req.Memory.Refused(); refused != nil {
		return refused
	}
	if e.ctx.Err() != nil {
		return context.Cause(e.ctx)
	}
	return nil
}

// settle returns an object as a server has it at the beginning of admission.
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

// replay applies the changes that policies made to the request's object to Made.
func (o *Object) replay() *unstructured.Unstructured {
	if !o.Decision.Changed {
		return o.Made
	}
	after := manifest.ReplayProven(o.Made.Object, o.Request.Object.Object, o.Decision.Object.Object, o.decode)
	return &unstructured.Unstructured{Object: after}
}

// request returns the request that creates an object. Where the workload does not determine what
// a controller would send, the request has the values of the workload's request: its user, and
// whether it is a dry run.
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
