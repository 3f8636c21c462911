package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Options configure an Engine. The zero value is usable.
type Options struct {
	// Authorizer answers the checks of the expressions' authorizer variable.
	// Each request asks it about one thing at most once. Nil makes every check
	// an error.
	Authorizer authorizer.Authorizer
	// Convert returns obj, which it must not modify, as another version of
	// itself. It returns ErrNoConversion where there is no way. Nil knows no
	// way between any two versions. It must be safe for concurrent use.
	Convert func(obj *unstructured.Unstructured, to schema.GroupVersionKind) (*unstructured.Unstructured, error)
	// Trace keeps the object before and after each mutation in its Step. Without
	// it, mutations that follow each other write to the same copy.
	Trace bool
}

// Engine runs requests through the snapshot that was published last. It is safe
// for concurrent use.
type Engine struct {
	options Options
	index   atomic.Pointer[binding.Index]
	set     atomic.Pointer[Set]
	lane    lane
}

// New returns an Engine without a snapshot; it admits every request unchanged
// until the first Publish.
func New(opts Options) *Engine { return &Engine{options: opts, lane: newLane()} }

// Publish makes ix the snapshot for all requests that start from now on.
// Requests that are under way finish with the one they started with.
func (e *Engine) Publish(ix *binding.Index) { e.index.Store(ix) }

// PublishSet makes s the Set for all requests that start from now on, nil none.
// It runs on what came of the Index.
func (e *Engine) PublishSet(s *Set) { e.set.Store(s) }

// Set returns the current Set, nil if there is none.
func (e *Engine) Set() *Set { return e.set.Load() }

// Index returns the current snapshot, nil before the first Publish.
func (e *Engine) Index() *binding.Index { return e.index.Load() }

// Admit runs all policies that a request meets, then the Set on what they leave,
// and decides. It returns no error: what cannot be decided is denied or allowed
// as the failurePolicy says, or is one of the statuses that failurePolicy does
// not reach (spec §9.5b). Neither the request nor its objects are modified.
func (e *Engine) Admit(ctx context.Context, req *policy.Request) *Decision {
	d := e.admit(ctx, req)
	if s := e.set.Load(); s != nil && d.Status == nil {
		s.admit(ctx, req, d)
	}
	return d
}

// admit runs the policies of the Index.
func (e *Engine) admit(ctx context.Context, req *policy.Request) *Decision {
	ix := e.index.Load()
	if ix == nil {
		return &Decision{Object: req.Object, Rounds: 1}
	}
	r := runs.Get().(*run)
	ix.SelectInto(&r.selection, ctx, req, req.Object)
	if len(r.selection.Invocations) == 0 {
		r.selection.Reset()
		runs.Put(r)
		return &Decision{Object: req.Object, Rounds: 1}
	}

	a := &answer{decision: Decision{Object: req.Object, Rounds: 1}}
	d := &a.decision
	r.begin(ctx, e, ix, req)
	ended := false
	defer func() {
		if !ended { // a panic, with which r is lost
			r.turn.leave()
		}
	}()
	d.Status = r.round()
	if d.Status == nil && r.completed {
		// A mutation that completed asks for the second round even if it changed
		// nothing: that is the server's "dirty" flag (spec §9.3).
		d.Rounds = 2
		d.Status = r.secondRound()
	}
	d.Steps = r.steps
	if object := r.draft.Object(); d.Status == nil && req.Object != nil && object != req.Object && !tree.Equal(req.Object.Object, object.Object) {
		a.object.Object = object.Object
		d.Object, d.Changed = &a.object, true
	}
	r.end()
	ended = true
	return d
}

// answer is a Decision with room for its object.
type answer struct {
	decision Decision
	object   unstructured.Unstructured
}

// noObject is why mutations of a CONNECT without options are skipped.
const noObject = "the request has no object"

// run is one request under way, and the room that is for the next one too.
type run struct {
	state
	selection binding.Selection
	draft     policy.Draft // of the current object, in the version of req.Kind
}

// state is what the next request must know nothing of.
type state struct {
	engine     *Engine
	index      *binding.Index
	ctx        context.Context
	req        *policy.Request
	authorizer authorizer.Authorizer
	asked      requestAuthorizer
	turn       turn
	grown      int64 // see policy.Input

	number  int // of the round
	steps   []Step
	denials []denial

	namespace   *unstructured.Unstructured
	namespaceOK bool
	old         map[schema.GroupVersionKind]*unstructured.Unstructured

	cost      int64 // of the step under way
	began     time.Time
	clock     time.Duration // since then, when the last step was through
	completed bool          // some mutation did, in round 1
	lively    bool          // some invocation of round 1 has something to do in round 2 too
	again     map[identity]bool
}

// runs are for use again. Nothing of one may become part of a Decision.
var runs = sync.Pool{New: func() any { return new(run) }}

func (r *run) begin(ctx context.Context, e *Engine, ix *binding.Index, req *policy.Request) {
	r.engine, r.index, r.ctx, r.req = e, ix, ctx, req
	r.turn.lane = e.lane
	if e.options.Authorizer != nil {
		r.asked.Authorizer = e.options.Authorizer
		r.authorizer = &r.asked
	}
	n := expected(r.selection.Invocations)
	r.steps = make([]Step, 0, n)
	r.draft.Reset(req.Object, n)
	r.began = time.Now()
}

func (r *run) end() {
	r.turn.leave()
	r.draft.Reset(nil, 0)
	r.selection.Reset()
	r.state = state{}
	runs.Put(r)
}

// expected is how many steps there will mostly be.
func expected(selected []binding.Invocation) int {
	n := 0
	for i := range selected {
		p := selected[i].Policy
		steps := max(1, len(p.Mutations()))
		if p.Object().Spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy {
			steps *= 2
		}
		n += steps
	}
	return n
}

// lap is how long it is since the last lap.
func (r *run) lap() time.Duration {
	now := time.Since(r.began)
	d := now - r.clock
	r.clock = now
	return d
}

// identity is what an invocation is recognised by in the second round (spec §3.4).
type identity struct{ policy, binding, paramNamespace, paramName string }

// secondRound runs what is selected now (spec §9.3). Equal questions have equal
// answers, so that is what the first round had unless a selector read what has
// changed.
func (r *run) secondRound() *metav1.Status {
	object := r.draft.Object()
	switch {
	case !r.selection.Stands(object):
		r.index.SelectInto(&r.selection, r.ctx, r.req, object)
	case r.lively:
		for i := range r.selection.Invocations {
			inv := &r.selection.Invocations[i]
			inv.Err, inv.PolicyError = nil, false // the first round's conversion
		}
	default:
		return interrupted(r.ctx, r.req)
	}
	return r.round()
}

// round runs the invocations that are selected and returns the status that ends
// the request, or nil.
func (r *run) round() *metav1.Status {
	selected := r.selection.Invocations
	r.number++
	r.lap()
	runnable := 0
	for i := range selected {
		inv := &selected[i]
		if inv.Err == nil {
			inv.Err, inv.PolicyError = r.convertible(inv.Kind)
		}
		if r.number == 1 && !r.lively {
			r.lively = r.returns(inv)
		}
		switch {
		case inv.Err == nil:
			runnable++
		case inv.PolicyError && i > 0 && selected[i-1].PolicyError && sameBinding(inv, &selected[i-1]):
			// The server converts once per binding, not per parameter.
		default:
			r.configurationError(inv)
		}
	}
	if runnable > 0 {
		if status := r.fetchNamespace(); status != nil {
			return status
		}
		for i := range selected {
			if selected[i].Err != nil {
				continue
			}
			if status := r.invoke(&selected[i]); status != nil {
				return status
			}
		}
		if status := r.restoreVersion(); status != nil {
			return status
		}
	}
	if len(r.denials) > 0 {
		return deniedStatus(r.req, r.draft.Object(), r.denials)
	}
	return nil
}

// returns reports whether a second round does anything with an invocation: it
// runs again, or what is asked before that may fail.
func (r *run) returns(inv *binding.Invocation) bool {
	spec := &inv.Policy.Object().Spec
	return inv.Err != nil || inv.Kind != r.req.Kind || len(spec.MatchConditions) > 0 ||
		spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy
}

// restoreVersion undoes what JSON patches did to the apiVersion of a custom
// resource. The server converts the object back to the version of the request
// once all invocations are done, and can do so from any version of its
// definition; from others the request ends (k8s.io/apiserver …/mutating/dispatcher.go,
// k8s.io/apiextensions-apiserver …/conversion/converter.go). For built-in kinds
// such a patch has failed before.
func (r *run) restoreVersion() *metav1.Status {
	object := r.draft.Object()
	if object == nil || object == r.req.Object || object.Object["apiVersion"] == r.req.Object.Object["apiVersion"] {
		return nil
	}
	object = r.draft.Keep()
	got, home := object.GroupVersionKind(), r.req.Object.GroupVersionKind()
	from := got
	from.Kind = home.Kind
	back, err := r.engine.convert(WithVersion(object, from), from, home)
	switch {
	case err == nil && back != nil:
		home.Kind = got.Kind // the server leaves that alone
		r.draft.Put(WithVersion(back, home))
		return nil
	case !errors.Is(err, ErrNoConversion):
	case got.Group != home.Group:
		err = fmt.Errorf("%v is unstructured and is not suitable for converting to %q", got, home.GroupVersion())
	default:
		err = fmt.Errorf("request to convert CR from an invalid group/version: %s", got.GroupVersion())
	}
	return immediateStatus(apierrors.NewInternalError(fmt.Errorf("failed to convert object: %w", err)))
}

func sameBinding(a, b *binding.Invocation) bool {
	return a.Policy == b.Policy && a.Binding == b.Binding
}

// convertible says whether the request's objects can be had in the version that
// a policy matched. Not to know a way is no error yet: the server knows one into
// the policy's version but none back, so it fails at the mutations.
func (r *run) convertible(kind schema.GroupVersionKind) (err error, policyError bool) {
	if kind == r.req.Kind {
		return nil, false
	}
	if _, err = r.engine.convert(r.draft.Object(), r.req.Kind, kind); err == nil {
		_, err = r.oldObject(kind)
	}
	if err == nil || errors.Is(err, ErrNoConversion) {
		return nil, false
	}
	return err, true
}

// oldObject returns the request's old object in another version, converted once.
func (r *run) oldObject(kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	if r.req.OldObject == nil || kind == r.req.Kind {
		return r.req.OldObject, nil
	}
	if old, ok := r.old[kind]; ok {
		return old, nil
	}
	old, err := r.engine.convert(r.req.OldObject, r.req.Kind, kind)
	if err != nil {
		return nil, err
	}
	if r.old == nil {
		r.old = map[schema.GroupVersionKind]*unstructured.Unstructured{}
	}
	r.old[kind] = old
	return old, nil
}

// fetchNamespace fetches the request's namespace, which every policy may read.
// A Namespace has none, although its request carries one.
func (r *run) fetchNamespace() *metav1.Status {
	kind := r.req.RequestKind
	if kind.Empty() {
		kind = r.req.Kind
	}
	if r.namespaceOK || r.req.Namespace == "" || kind == (schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}) {
		return nil
	}
	ns, err := r.index.Namespace(r.ctx, r.req.Namespace)
	if err != nil {
		if status := immediateStatus(err); status != nil {
			return status
		}
		return immediateStatus(apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, r.req.Namespace))
	}
	r.namespace, r.namespaceOK = ns, true
	return nil
}

// invoke runs one invocation: its conditions, and its mutations unless this is
// the second round and the first did not reach them.
func (r *run) invoke(inv *binding.Invocation) *metav1.Status {
	if status := interrupted(r.ctx, r.req); status != nil {
		return status
	}
	p := inv.Policy
	if p.Err() != nil {
		r.broken(inv)
		return nil
	}
	rerun := r.number == 1 || r.again[identityOf(inv)]
	if !rerun && !r.returns(inv) {
		return nil
	}
	in := policy.Input{
		Request:    r.req,
		Kind:       inv.Kind,
		Resource:   inv.Resource,
		Object:     r.draft.Object(),
		OldObject:  r.req.OldObject,
		Params:     inv.Params,
		Namespace:  r.namespace,
		Draft:      &r.draft,
		Authorizer: r.authorizer,
		Cost:       &r.cost,
		Turn:       &r.turn,
		Grown:      &r.grown,
	}
	// Without a way to the matched version conditions see the object as we hold
	// it: most ask for names, labels and users, which are alike in all versions.
	var impossible bool
	if inv.Kind != r.req.Kind {
		in.Draft = nil
		object, err := r.engine.convert(r.draft.Keep(), r.req.Kind, inv.Kind)
		var old *unstructured.Unstructured
		if err == nil {
			old, err = r.oldObject(inv.Kind)
		}
		switch {
		case err == nil:
			in.Object, in.OldObject = object, old
		case errors.Is(err, ErrNoConversion):
			impossible = true
		default:
			return immediateStatus(apierrors.NewInternalError(err))
		}
	}

	var conditions spent
	if len(p.Object().Spec.MatchConditions) > 0 {
		proceed, status := r.matchConditions(inv, in, rerun, &conditions)
		if !proceed {
			return status
		}
	}
	if !rerun {
		return nil
	}

	matched := in.Object
	for i, m := range p.Mutations() {
		step := r.step(inv)
		step.Mutation, step.Type = i, m.Type
		step.ConditionCost, step.ConditionTime = conditions.cost, conditions.time
		conditions = spent{}
		switch {
		case in.Object == nil:
			step.Reason = noObject
			continue
		case impossible:
			if status := r.fail(inv, step, unknownConversion(inv.Kind, r.req.Kind)); status != nil {
				return status
			}
			continue
		}
		next, err := r.mutate(inv, m, in, step)
		if err != nil {
			if status := r.fail(inv, step, err); status != nil {
				return status
			}
			continue
		}
		r.completed = r.completed || r.number == 1
		in.Object = next
	}
	if in.Draft == nil && in.Object != matched {
		back, err := r.engine.convert(in.Object, inv.Kind, r.req.Kind)
		if errors.Is(err, ErrNoConversion) {
			// The way there was known, so a patch has made another kind of it.
			err = fmt.Errorf("%v is unstructured and is not suitable for converting to %q",
				in.Object.GroupVersionKind(), r.req.Kind.GroupVersion())
		}
		if err != nil {
			return immediateStatus(apierrors.NewInternalError(fmt.Errorf("failed to convert object: %w", err)))
		}
		r.draft.Put(back)
	}
	if r.number == 1 && p.Object().Spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy {
		if r.again == nil {
			r.again = map[identity]bool{}
		}
		r.again[identityOf(inv)] = true
	}
	return nil
}

// mutate runs one mutation, notes what it did and returns the object after it.
func (r *run) mutate(inv *binding.Invocation, m policy.Mutation, in policy.Input, step *Step) (*unstructured.Unstructured, error) {
	trace, draft := r.engine.options.Trace, in.Draft
	if draft != nil {
		if m.Type == "" {
			in.Draft = nil // it is none of ours, and knows no drafts
		}
		if trace || in.Draft == nil {
			in.Object = draft.Keep()
		}
	}
	if trace {
		step.Before, step.After = in.Object, in.Object
	}
	r.cost = 0
	next, err := mutate(r.ctx, inv.Policy.Name(), m, in)
	step.Duration, step.Cost = r.lap(), r.cost
	if err != nil {
		return nil, err
	}
	if next == in.Object {
		step.Outcome = Unchanged
		return next, nil
	}
	step.Outcome = Changed
	switch {
	case draft == nil:
		step.paths = tree.Changed(in.Object.Object, next.Object)
	case next != draft.Object():
		draft.Take(next)
		fallthrough
	default:
		step.paths = draft.Changed()
	}
	if trace {
		if draft != nil {
			next = draft.Keep()
		}
		step.After = next
	}
	return next, nil
}

// spent is what match conditions took.
type spent struct {
	cost int64
	time time.Duration
}

// matchConditions says whether an invocation may go on to its mutations. Its
// verdict on one that would not run again anyway is not worth a step, but its
// errors count (spec §4.3).
func (r *run) matchConditions(inv *binding.Invocation, in policy.Input, rerun bool, took *spent) (proceed bool, _ *metav1.Status) {
	r.cost = 0
	match, err := matches(r.ctx, inv.Policy, in)
	took.time, took.cost = r.lap(), r.cost
	if err == nil && match.OK {
		return true, nil
	}
	if err != nil {
		if status := interrupted(r.ctx, r.req); status != nil {
			return false, status
		}
	}
	if err == nil && !rerun {
		return false, nil
	}
	step := r.step(inv)
	step.Duration, step.Cost = took.time, took.cost
	if err != nil {
		r.deny(inv, step, err, metav1.StatusReasonInvalid)
		return false, nil
	}
	step.Reason = fmt.Sprintf("match condition %q is false", match.Condition)
	return false, nil
}

// mutate is m.Mutate with panics as errors. What panicked is named, so that the
// policy can be found; where is for a debugger, not for the client. One that
// leaves the object half written ends the request, whatever the failurePolicy.
func mutate(ctx context.Context, name string, m policy.Mutation, in policy.Input) (next *unstructured.Unstructured, err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if next, err = nil, panicError(name, p); in.Draft != nil && in.Draft.Torn() {
			err = apierrors.NewInternalError(err)
		}
	}()
	next, err = m.Mutate(ctx, in)
	if err == nil && next == nil {
		return nil, errors.New("mutation returned no object")
	}
	return next, err
}

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

// PanicText says what a recovered panic was about without quoting its value,
// which may hold part of an object.
func PanicText(v any) string {
	var err runtime.Error
	if e, ok := v.(error); ok && errors.As(e, &err) {
		return err.Error()
	}
	return fmt.Sprintf("a %T", v)
}

// broken reports a policy that does not compile.
func (r *run) broken(inv *binding.Invocation) {
	switch {
	case r.number > 1: // nothing of it completed, so nothing of it runs again
	case r.draft.Object() == nil:
		r.step(inv).Reason = noObject
	default:
		for _, e := range brokenErrors(inv.Policy) {
			r.deny(inv, r.step(inv), e, metav1.StatusReasonInvalid)
		}
	}
}

// fail records that a mutation failed, and returns the status if that ends the
// request.
func (r *run) fail(inv *binding.Invocation, step *Step, err error) *metav1.Status {
	status := immediateStatus(err)
	if status == nil {
		status = interrupted(r.ctx, r.req)
	}
	if status != nil {
		step.Outcome, step.Err = Failed, err
		return status
	}
	r.deny(inv, step, err, metav1.StatusReasonInvalid)
	return nil
}

func (r *run) configurationError(inv *binding.Invocation) {
	step := r.step(inv)
	if inv.PolicyError {
		step.Binding, step.Param = "", ""
		r.deny(inv, step, fmt.Errorf("failed to configure policy: %w", inv.Err), "")
		return
	}
	r.deny(inv, step, fmt.Errorf("failed to configure binding: %w", inv.Err), "")
}

// deny records an error and, unless the policy ignores it, denies the request.
// This is the one reader of failurePolicy.
func (r *run) deny(inv *binding.Invocation, step *Step, err error, reason metav1.StatusReason) {
	step.Outcome, step.Err = Failed, err
	failurePolicy := inv.Policy.Object().Spec.FailurePolicy
	step.Ignored = failurePolicy != nil && *failurePolicy == admissionregistrationv1.Ignore
	if !step.Ignored {
		r.denials = append(r.denials, denial{message: denialMessage(step.Policy, step.Binding, err), reason: reason})
	}
}

// step adds a step of an invocation, Skipped so far and about no mutation. It may
// be filled in until the next one is added.
func (r *run) step(inv *binding.Invocation) *Step {
	r.steps = append(r.steps, Step{Round: r.number, Policy: inv.Policy.Name(), Binding: inv.Binding, Mutation: -1})
	step := &r.steps[len(r.steps)-1]
	if inv.Params != nil {
		step.Param = inv.Params.GetName()
		if ns := inv.Params.GetNamespace(); ns != "" {
			step.Param = ns + "/" + step.Param
		}
	}
	return step
}

func identityOf(inv *binding.Invocation) identity {
	id := identity{policy: inv.Policy.Name(), binding: inv.Binding}
	if inv.Params != nil {
		id.paramNamespace, id.paramName = inv.Params.GetNamespace(), inv.Params.GetName()
	}
	return id
}
