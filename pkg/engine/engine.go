package engine

import (
	"context"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Options configure an Engine. The zero value is usable.
type Options struct {
	// Authorizer answers the checks of the expressions' authorizer variable. For each request
	// it is asked at most once about the same attributes. If it is nil, every check is an
	// error.
	Authorizer authorizer.Authorizer
	// Convert returns obj, which it must not modify, converted to another version. It returns
	// ErrNoConversion if it cannot convert. If Convert is nil, no conversion is possible. It
	// must be safe for concurrent use.
	Convert func(obj *unstructured.Unstructured, to schema.GroupVersionKind) (*unstructured.Unstructured, error)
	// Trace keeps the object before and after each mutation in its Step. Without it,
	// consecutive mutations write to the same copy.
	Trace bool
	// Resolver answers the questions of Admission.Ask. If it is nil, every answer is an error.
	Resolver Resolver
	// Order changes the order in which a round runs its invocations, and may leave some out. It
	// gets them sorted by policy, binding and parameter, and returns them in the memory of its
	// argument. It is not called for Kubewarden's policies. Nil keeps the order. A server runs
	// the invocations of one policy together, and among them those of one binding.
	Order func([]binding.Invocation) []binding.Invocation
}

// Engine runs requests through the stages that were last published. It is safe for concurrent
// use.
type Engine struct {
	options Options
	stages  atomic.Pointer[[]Stage]
	lane    lane
}

// New returns an Engine without stages, which admits every request unchanged until the first
// Publish.
func New(opts Options) *Engine { return &Engine{options: opts, lane: processLane()} }

// With returns an engine with the stages of e and changed options.
func (e *Engine) With(change func(*Options)) *Engine {
	opts := e.options
	change(&opts)
	out := New(opts)
	out.Publish(e.Stages()...)
	return out
}

// Publish sets the stages, in this order, for all requests that start from now on. Requests
// that have started keep the stages with which they started.
func (e *Engine) Publish(stages ...Stage) { e.stages.Store(&stages) }

// Stages returns the stages that were last published. The list must not be modified.
func (e *Engine) Stages() []Stage {
	if stages := e.stages.Load(); stages != nil {
		return *stages
	}
	return nil
}

// MayMeet reports whether any stage may have a policy for requests of the kind of req, whatever
// their objects are.
func (e *Engine) MayMeet(req *policy.Request) bool {
	return slices.ContainsFunc(e.Stages(), func(s Stage) bool {
		switch r := s.Runner.(type) {
		case policies:
			return r.index.MayMeet(req)
		case *Set:
			return r.mayMeet(req)
		}
		return true
	})
}

// Admit runs a request through all stages and decides. It returns no error: errors lead to a
// denial unless failurePolicy is Ignore, or to one of the statuses that failurePolicy does not
// affect (spec §9.5b). Neither the request nor its objects are modified.
func (e *Engine) Admit(ctx context.Context, req *policy.Request) *Decision {
	a := newAdmission(ctx, e, req)
	ended := false
	defer func() {
		if !ended { // after a panic, a must not be reused
			a.turn.leave()
		}
	}()
	var d *decided
	object := req.Object
	stages := e.Stages()
	for i := range stages {
		s := &stages[i]
		switch s.Mode {
		case api.Enforce:
		case api.Off:
			continue
		default:
			a.waiting = append(a.waiting, waiting{stage: s, object: object, grown: a.grown, asks: a.asks})
			continue
		}
		a.enter(s, object)
		result, met := s.Runner.Run(ctx, a)
		if !met {
			continue
		}
		if d == nil {
			d = &decided{Decision: Decision{Object: object}}
			d.Stages = d.first[:0]
		}
		d.add(req, s, object, result)
		d.Stages[len(d.Stages)-1].Asked = a.sources
		if d.Status != nil {
			break
		}
		object = d.Object
	}
	if len(a.waiting) > 0 {
		d = a.beside(d, stages)
	}
	leftOut := a.leftOut
	a.end()
	ended = true
	if d == nil {
		return &Decision{Object: req.Object, LeftOut: leftOut}
	}
	d.LeftOut = leftOut
	return &d.Decision
}

// decided is a Decision with memory for its first Record, which saves an allocation.
type decided struct {
	Decision
	first [1]Record
}

// record adds a Record of the stage's result. object is the object before the stage.
func (d *decided) record(s *Stage, object *unstructured.Unstructured, result Result) *Record {
	d.Stages = append(d.Stages, Record{Stage: s, Object: object, Status: result.Status, Steps: result.Steps, Rounds: result.Rounds})
	r := &d.Stages[len(d.Stages)-1]
	if result.Object != nil && result.Status == nil {
		r.content.Object = result.Object
		r.Object, r.Changed = &r.content, true
	}
	return r
}

// add adds the result of an enforced stage, and applies it to the Decision.
func (d *decided) add(req *policy.Request, s *Stage, object *unstructured.Unstructured, result Result) {
	r := d.record(s, object, result)
	d.Warnings = append(d.Warnings, result.Warnings...)
	if len(d.Steps) == 0 {
		d.Steps = result.Steps
	} else {
		d.Steps = append(d.Steps[:len(d.Steps):len(d.Steps)], result.Steps...)
	}
	switch {
	case r.Status != nil:
		d.Status, d.Object, d.Changed = r.Status, req.Object, false
	case r.Changed:
		d.Changed = object == req.Object || !tree.Equal(req.Object.Object, result.Object)
		d.Object = r.Object
	}
}
