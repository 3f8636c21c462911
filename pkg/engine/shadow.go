package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Shadow is the result that an invocation that is not enforced would have had on the object at
// its place in the order. It has no effect on the rest of the request.
type Shadow struct {
	// Mode is api.Shadow or api.Warn.
	Mode api.Mode
	// Binding is empty if the error is about the policy itself. Param is the parameter's
	// "namespace/name" or "name", or empty.
	Policy, Binding, Param string
	// Before and After are the object before and after the invocation, in the version of the
	// request; the same pointer if it would not have changed.
	Before, After *unstructured.Unstructured
	// Status is the status with which the invocation would have refused the request, else nil.
	Status *metav1.Status
	Steps  []Step
}

// Changed says that the object would have changed.
func (s *Shadow) Changed() bool { return s.Before != s.After }

// Err returns the first error of a step, or else the error in Status; nil if the invocation
// would not have failed, not even under failurePolicy Ignore.
func (s *Shadow) Err() error {
	for i := range s.Steps {
		if err := s.Steps[i].Err; err != nil {
			return err
		}
	}
	if s.Status != nil {
		return errors.New(s.Status.Message)
	}
	return nil
}

// errNoTime is why a policy or a stage that is not enforced did not run.
var errNoTime = errors.New("policies that are not enforced have used their half of the time that was left")

// waiting is an invocation or a stage that is not enforced. It runs after everything that is
// enforced, on the object at its place in the order.
type waiting struct {
	stage  *Stage
	object *unstructured.Unstructured
	grown  int64 // see progress
	asks   int

	// invocation is nil if a whole stage waits. The fields below belong to the invocation.
	invocation *binding.Invocation
	policies
	namespace   *unstructured.Unstructured
	namespaceOK bool
	textual     bool
}

// deferShadow queues an invocation that is not enforced, to run after the decision.
func (r *run) deferShadow(inv *binding.Invocation) {
	own := *inv // the next round overwrites the selection
	r.waiting = append(r.waiting, waiting{
		stage: r.stage, object: r.draft.Keep(), grown: r.grown, asks: r.asks,
		invocation: &own, policies: r.policies, namespace: r.namespace, namespaceOK: r.namespaceOK, textual: r.draft.Textual,
	})
}

// beside runs the queue of what is not enforced, after the decision: with a memory account and
// turns of its own, and in half of the remaining time. It does nothing for a request that was
// interrupted.
func (a *Admission) beside(d *decided, stages []Stage) *decided {
	if interrupted(a.ctx, a.Request) != nil {
		return d
	}
	a.turn.leave()
	ctx, cancel := a.ctx, func() {}
	if deadline, ok := ctx.Deadline(); ok {
		ctx, cancel = context.WithTimeoutCause(ctx, time.Until(deadline)/2, errNoTime)
	}
	defer cancel()
	account := a.Request.Memory.Shadow()
	defer func() { a.Request.Memory.Join(account) }()
	own, whole := new(Admission), false
	for i := 0; i < len(a.waiting); i++ {
		w := a.waiting[i]
		if account.Refused() != nil {
			a.Request.Memory.Join(account)
			account = a.Request.Memory.Shadow()
		}
		own.Request, own.Object, own.run.state = a.Request.Beside(account), w.object, state{}
		own.progress = progress{options: a.options, ctx: ctx, stage: w.stage, grown: w.grown, known: maps.Clone(a.known), asks: w.asks}
		own.turn.lane, own.asked.Authorizer = a.turn.lane, a.asked.Authorizer
		if w.invocation != nil {
			r := d.Stage(w.stage.Name)
			r.Shadows = append(r.Shadows, own.shadow(&w))
		} else if result, met := own.tryStage(ctx, w.stage); met {
			if whole = true; d == nil {
				d = &decided{Decision: Decision{Object: a.Request.Object}}
			}
			d.record(w.stage, w.object, result).Asked = own.sources
			a.waiting = append(a.waiting, own.waiting...)
		}
		a.leftOut = append(a.leftOut, own.leftOut...)
		if own.turn.leave(); own.panicked {
			own = new(Admission)
		}
	}
	if whole {
		// Sort a copy: the Object of a Record may be its own content, which must not be
		// overwritten by another Record.
		d.Stages = slices.Clone(d.Stages)
		at := func(r Record) int {
			return slices.IndexFunc(stages, func(s Stage) bool { return s.Name == r.Stage.Name })
		}
		slices.SortStableFunc(d.Stages, func(r, s Record) int { return at(r) - at(s) })
	}
	return d
}

// tryStage runs a stage that is not enforced.
func (a *Admission) tryStage(ctx context.Context, s *Stage) (result Result, met bool) {
	defer func() {
		if v := recover(); v != nil {
			a.panicked = true
			err := fmt.Errorf("panic in stage %q: %s", s.Name, PanicText(v))
			result, met = Result{Status: immediateStatus(apierrors.NewInternalError(err))}, true
		}
	}()
	return s.Runner.Run(ctx, a)
}

// shadow runs a queued invocation.
func (a *Admission) shadow(w *waiting) Shadow {
	inv := w.invocation
	s := Shadow{Mode: inv.Mode, Policy: inv.Policy.Name(), Binding: inv.Binding, Before: w.object, After: w.object}
	a.startClock()
	a.run.state = state{Admission: a, policies: w.policies, number: 1, namespace: w.namespace, namespaceOK: w.namespaceOK}
	a.run.draft.Reset(w.object, 0)
	a.run.draft.Textual = w.textual
	s.Status = a.run.alone(inv)
	s.Steps = a.steps
	if len(s.Steps) > 0 {
		s.Param = s.Steps[0].Param
	}
	if after := a.run.draft.Keep(); s.Status == nil && w.object != nil && after != w.object && !tree.Equal(w.object.Object, after.Object) {
		s.After = after
	}
	return s
}

// alone runs one invocation as if it were the only one. It returns the status with which the
// invocation ends the request, or nil.
func (r *run) alone(inv *binding.Invocation) (status *metav1.Status) {
	defer func() {
		if v := recover(); v != nil {
			r.panicked = true
			err := panicError(inv.Policy.Name(), v)
			step := r.stepOf(inv)
			step.Outcome, step.Err = Failed, err
			r.draft.Undo()
			status = deniedStatus(r.Request, r.Object, []denial{{message: denialMessage(step.Policy, step.Binding, err)}})
		}
	}()
	failed := failure{inv.Err, inv.PolicyError}
	if failed.err == nil {
		failed = r.convertible(inv.Kind)
	}
	if failed.err != nil {
		r.configurationError(inv, failed)
	} else {
		if status = r.fetchNamespace(); status == nil {
			status = r.invoke(inv)
		}
		if status == nil {
			status = r.restoreVersion()
		}
	}
	if status == nil && len(r.denials) > 0 {
		status = deniedStatus(r.Request, r.draft.Object(), r.denials)
	}
	return status
}
