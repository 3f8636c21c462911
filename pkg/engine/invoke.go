package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
)

// invoke runs one invocation: its conditions and its mutations. In the second round, mutations
// run only if they ran in the first and the policy's reinvocationPolicy is IfNeeded.
func (r *run) invoke(inv *binding.Invocation) *metav1.Status {
	if status := interrupted(r.ctx, r.Request); status != nil {
		return status
	}
	if inv.Policy.Err() != nil {
		r.broken(inv)
		return nil
	}
	mutates := r.number == 1 || r.again[identityOf(inv)]
	if !mutates && !r.returns(inv) {
		return nil
	}
	in, way := r.inputOf(inv)
	if way != nil && !errors.Is(way, ErrNoConversion) {
		return immediateStatus(apierrors.NewInternalError(way))
	}
	var conditions spent
	if len(inv.Policy.Object().Spec.MatchConditions) > 0 {
		if proceed, status := r.matchConditions(inv, in, mutates, &conditions); !proceed {
			return status
		}
	}
	if !mutates {
		return nil
	}
	if status := r.mutations(inv, in, way == nil, conditions); status != nil {
		return status
	}
	if status := r.convertBack(inv, in); status != nil {
		return status
	}
	if r.number == 1 && inv.Policy.Object().Spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy {
		if r.again == nil {
			r.again = map[identity]bool{}
		}
		r.again[identityOf(inv)] = true
	}
	return nil
}

// inputOf returns the input of an invocation, in the version that its policy matched, or the
// error if the objects cannot be converted to it. With ErrNoConversion, conditions see the
// object in the version of the request: most of them read names, labels and users, which are
// the same in all versions.
func (r *run) inputOf(inv *binding.Invocation) (policy.Input, error) {
	in := r.input(&r.draft)
	in.Kind, in.Resource, in.Params, in.Namespace = inv.Kind, inv.Resource, inv.Params, r.namespace
	if r.modules {
		in.Remarks = &r.said
	}
	if r.asked.Authorizer != nil {
		in.Authorizer = &r.asked
	}
	if inv.Kind == r.Request.Kind {
		return in, nil
	}
	object, err := r.options.convert(r.draft.Keep(), r.Request.Kind, inv.Kind)
	if err != nil {
		return in, err
	}
	old, err := r.oldObject(inv.Kind)
	if err != nil {
		return in, err
	}
	in.Object, in.OldObject, in.Draft = object, old, r.draft.Converted(object)
	return in, nil
}

// mutations runs the mutations of an invocation. possible is false if the object cannot be
// converted to the version that the policy matched.
func (r *run) mutations(inv *binding.Invocation, in policy.Input, possible bool, conditions spent) *metav1.Status {
	for i, m := range inv.Policy.Mutations() {
		step := r.stepOf(inv)
		step.Mutation, step.Type = i, m.Type
		if r.rule != nil {
			step.Policy, step.Type = r.rule(inv.Policy.Name(), i), ""
		}
		step.ConditionCost, step.ConditionTime, step.ConditionTrace = conditions.cost, conditions.time, conditions.trace
		conditions = spent{}
		var err error
		switch {
		case in.Object == nil && !r.modules:
			step.Reason = noObject
			continue
		case !possible:
			err = unknownConversion(inv.Kind, r.Request.Kind)
		default:
			err = r.mutate(inv.Policy.Name(), m, in, step)
		}
		if err != nil {
			if status := r.fail(inv, step, err); status != nil {
				return status
			}
			continue
		}
		r.completed = r.completed || r.number == 1
	}
	return nil
}

// convertBack converts the result of an invocation back to the version of the request, and
// makes it the current object.
func (r *run) convertBack(inv *binding.Invocation, in policy.Input) *metav1.Status {
	if in.Draft == &r.draft || in.Draft.Object() == in.Object {
		return nil
	}
	object := in.Draft.Keep()
	back, err := r.options.convert(object, inv.Kind, r.Request.Kind)
	if errors.Is(err, ErrNoConversion) {
		// Conversion in the other direction succeeded, so a patch has changed the object's
		// kind.
		err = fmt.Errorf("%v is unstructured and is not suitable for converting to %q",
			object.GroupVersionKind(), r.Request.Kind.GroupVersion())
	}
	if err != nil {
		return immediateStatus(apierrors.NewInternalError(fmt.Errorf("failed to convert object: %w", err)))
	}
	r.draft.Replace(back)
	r.draft.Textual = r.draft.Textual || in.Draft.Textual
	return nil
}

// mutate runs one mutation on in.Draft and fills in its step. If a Mutator does not write to
// the draft but returns an object of its own, that becomes the draft's object.
func (a *Admission) mutate(name string, m policy.Mutation, in policy.Input, step *Step) error {
	draft := in.Draft
	in.Object = draft.Object()
	if a.options.Trace {
		in.Object = draft.Keep()
		step.Before, step.After = in.Object, in.Object
	}
	a.cost = 0
	next, err := mutate(a.ctx, name, m, in)
	step.Duration, step.Cost, step.Trace = a.stepTime(), a.cost, draft.TakeTrace()
	if in.Remarks != nil {
		a.note(step, name)
	}
	if err != nil {
		return err
	}
	if next != draft.Object() {
		draft.Replace(next)
	}
	if draft.Object() == in.Object {
		step.Outcome = Unchanged
		if step.Remarks != nil && step.Remarks.Withheld != "" {
			step.Outcome, step.Reason = Skipped, step.Remarks.Withheld
		}
		return nil
	}
	step.Outcome, step.paths = Changed, draft.Changed()
	if a.options.Trace {
		step.After = draft.Keep()
	}
	return nil
}

// spent is the cost and the duration of match conditions.
type spent struct {
	cost  int64
	time  time.Duration
	trace *policy.Trace
}

// matchConditions reports whether the mutations of an invocation may run. If mutates is false,
// so that the mutations do not run again, it adds no step for a false condition, but errors
// count (spec §4.3).
func (r *run) matchConditions(inv *binding.Invocation, in policy.Input, mutates bool, took *spent) (proceed bool, _ *metav1.Status) {
	r.cost = 0
	match, err := matches(r.ctx, inv.Policy, in)
	took.time, took.cost, took.trace = r.stepTime(), r.cost, in.Draft.TakeTrace()
	if err == nil && match.OK {
		return true, nil
	}
	if err != nil {
		if status := interrupted(r.ctx, r.Request); status != nil {
			return false, status
		}
	}
	if err == nil && !mutates {
		return false, nil
	}
	step := r.stepOf(inv)
	step.Duration, step.Cost, step.ConditionTrace = took.time, took.cost, took.trace
	if err != nil {
		r.deny(inv, step, err, metav1.StatusReasonInvalid)
		return false, nil
	}
	step.Reason = fmt.Sprintf("match condition %q is false", match.Condition)
	return false, nil
}

// mutate calls m.Mutate and turns a panic into an error that names the policy. It undoes what
// was written before the panic.
func mutate(ctx context.Context, name string, m policy.Mutation, in policy.Input) (next *unstructured.Unstructured, err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		next, err = nil, panicError(name, p)
		in.Draft.Undo()
	}()
	next, err = m.Mutate(ctx, in)
	if err == nil && next == nil && in.Object != nil {
		return nil, errors.New("mutation returned no object")
	}
	return next, err
}

// matches calls p.Matches and turns a panic into an error.
func matches(ctx context.Context, p *policy.Policy, in policy.Input) (match policy.Match, err error) {
	defer func() {
		if v := recover(); v != nil {
			match, err = policy.Match{}, panicError(p.Name(), v)
		}
	}()
	return p.Matches(ctx, in)
}

func panicError(name string, v any) error {
	return fmt.Errorf("panic in policy %q: %s", name, PanicText(v))
}

// PanicText describes a recovered panic without quoting its value, which may hold
// part of an object.
func PanicText(v any) string {
	var err runtime.Error
	if e, ok := v.(error); ok && errors.As(e, &err) {
		return err.Error()
	}
	return fmt.Sprintf("a %T", v)
}

// broken reports the errors of a policy that does not compile.
func (r *run) broken(inv *binding.Invocation) {
	switch {
	case r.number > 1: // no mutation of it completed, so none runs again
	case r.draft.Object() == nil && !r.modules:
		r.stepOf(inv).Reason = noObject
	default:
		for _, e := range brokenErrors(inv.Policy) {
			r.deny(inv, r.stepOf(inv), e, metav1.StatusReasonInvalid)
		}
	}
}

// fail records that a mutation failed. It returns the status if that ends the request.
func (r *run) fail(inv *binding.Invocation, step *Step, err error) *metav1.Status {
	status := immediateStatus(err)
	switch {
	case status == nil:
		status = interrupted(r.ctx, r.Request)
	case r.modules:
		status = refusedBy(step.Policy, status)
	}
	if status != nil {
		step.Outcome, step.Err = Failed, err
		return status
	}
	r.deny(inv, step, err, metav1.StatusReasonInvalid)
	return nil
}

// configurationError records why an invocation cannot run.
func (r *run) configurationError(inv *binding.Invocation, f failure) {
	step := r.stepOf(inv)
	if f.aboutPolicy {
		step.Binding, step.Param = "", ""
		r.deny(inv, step, fmt.Errorf("failed to configure policy: %w", f.err), "")
		return
	}
	r.deny(inv, step, fmt.Errorf("failed to configure binding: %w", f.err), "")
}

// deny records an error and, unless the policy's failurePolicy is Ignore, denies the request.
// No other function reads failurePolicy.
func (r *run) deny(inv *binding.Invocation, step *Step, err error, reason metav1.StatusReason) {
	step.Outcome, step.Err = Failed, err
	failurePolicy := inv.Policy.Object().Spec.FailurePolicy
	step.Ignored = failurePolicy != nil && *failurePolicy == admissionregistrationv1.Ignore
	if !step.Ignored {
		r.denials = append(r.denials, denial{message: denialMessage(step.Policy, step.Binding, err), reason: reason})
	}
}

// stepOf adds a step for an invocation.
func (r *run) stepOf(inv *binding.Invocation) *Step {
	policy, binding := r.named(inv.Policy.Name(), inv.Binding)
	return r.step(r.number, policy, binding, inv.Params)
}
