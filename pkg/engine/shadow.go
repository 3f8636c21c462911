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

// Shadow is what an invocation that is not enforced would have made of the object as it
// was when its turn came. Nothing else of the request saw any of it.
type Shadow struct {
	// Mode is api.Shadow or api.Warn.
	Mode api.Mode
	// Binding is empty if the policy itself is at fault. Param is the parameter's
	// "namespace/name" or "name", or empty.
	Policy, Binding, Param string
	// Before and After are the object around the invocation, in the version of the
	// request; the same pointer if it would not have changed.
	Before, After *unstructured.Unstructured
	// Status is what the client would have been answered if the invocation refused the
	// request, else nil.
	Status *metav1.Status
	Steps  []Step
}

// Changed says that the object would have changed.
func (s *Shadow) Changed() bool { return s.Before != s.After }

// Err returns the first error that a step ended with, or else what Status says; nil if
// the invocation would not have failed, not even under failurePolicy Ignore.
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

// errNoTime is why something that is not enforced did not run.
var errNoTime = errors.New("policies that are not enforced have used their half of the time that was left")

// waiting is something that is not enforced: it runs after all that is, on the object as
// it was when its turn came.
type waiting struct {
	stage  *Stage
	object *unstructured.Unstructured
	grown  int64 // see progress
	asks   int

	// invocation is nil if the whole stage waits. What follows belongs to it.
	invocation *binding.Invocation
	policies
	namespace   *unstructured.Unstructured
	namespaceOK bool
	textual     bool
}

// deferShadow queues an invocation that is not enforced: it runs after the decision.
func (r *run) deferShadow(inv *binding.Invocation) {
	own := *inv // the next round uses the selection's memory
	r.waiting = append(r.waiting, waiting{
		stage: r.stage, object: r.draft.Keep(), grown: r.grown, asks: r.asks,
		invocation: &own, policies: r.policies, namespace: r.namespace, namespaceOK: r.namespaceOK, textual: r.draft.Textual,
	})
}

// beside runs what waits, now that the request is decided: with memory and turns of its
// own, and in half of the time that is left. A request that has no answer has no shadows.
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
		// A Record may have a pointer to its own content, so it must stay where it is.
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

// shadow runs an invocation that waits.
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

// alone runs one invocation as if there were no other, and returns the status with which
// it ends the request, or nil.
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
