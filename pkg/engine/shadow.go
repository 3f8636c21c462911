package engine

import (
	"context"
	"errors"
	"maps"
	"time"

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

// errNoTime is why an invocation that is not enforced did not run.
var errNoTime = errors.New("policies that are not enforced have used their half of the request's time")

// aside runs an invocation that is not enforced: on a draft of its own, with memory and
// turns of its own, and in half of the time that the request had left before the first
// of them.
func (r *run) aside(inv *binding.Invocation) {
	ctx, cancel := r.ctx, func() {}
	began := time.Now()
	if deadline, ok := r.ctx.Deadline(); ok {
		if r.shadows == nil {
			r.spare = deadline.Sub(began) / 2
		}
		ctx, cancel = context.WithTimeoutCause(r.ctx, r.spare, errNoTime)
	}
	defer cancel()
	// The place in the lane is for one evaluation, and a shadow must not wait for its own
	// request.
	if r.turn.inside {
		r.turn.leave()
		r.turn.yields = freeYields
	}
	before := r.draft.Keep()
	s := Shadow{Mode: inv.Mode, Policy: inv.Policy.Name(), Binding: inv.Binding, Before: before, After: before}
	own := &Admission{Request: r.Request.Beside(r.Request.Memory.Aside()), Object: before}
	own.progress = progress{options: r.options, ctx: ctx, stage: r.stage, grown: r.grown, known: maps.Clone(r.known), asks: r.asks}
	own.turn.lane, own.asked.Authorizer = r.turn.lane, r.asked.Authorizer
	own.startClock()
	own.run.state = state{Admission: own, policies: r.policies, number: 1, namespace: r.namespace, namespaceOK: r.namespaceOK}
	own.run.draft.Reset(before, 0)
	own.run.draft.Textual = r.draft.Textual
	s.Status = own.run.alone(inv)
	own.turn.leave()
	r.Request.Memory.Join(own.Request.Memory)
	s.Steps = own.steps
	if len(s.Steps) > 0 {
		s.Param = s.Steps[0].Param
	}
	if after := own.run.draft.Keep(); s.Status == nil && before != nil && after != before && !tree.Equal(before.Object, after.Object) {
		s.After = after
	}
	r.shadows = append(r.shadows, s)
	r.spare -= time.Since(began)
	r.lap()
}

// alone runs one invocation as if there were no other, and returns the status with which
// it ends the request, or nil.
func (r *run) alone(inv *binding.Invocation) (status *metav1.Status) {
	defer func() {
		if v := recover(); v != nil {
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
