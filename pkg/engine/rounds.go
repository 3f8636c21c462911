package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// policies is the Runner of an Index.
type policies struct {
	index *binding.Index
	// modules says that the policies are Kubewarden's: they run once, also on a request without
	// an object, and have remarks.
	modules bool
	// rule is the argument of Rules, nil for other policies.
	rule func(policy string, mutation int) string
}

// Run implements Runner.
func (p policies) Run(ctx context.Context, a *Admission) (result Result, met bool) {
	r := &a.run
	p.index.SelectInto(&r.selection, ctx, a.Request, a.Object)
	a.leave(p, r.selection.LeftOut)
	if len(r.selection.Invocations) == 0 {
		r.selection.Reset()
		return Result{}, false
	}
	r.begin(a, p)
	result.Rounds = 1
	result.Status = r.round()
	if result.Status == nil && r.completed && !p.modules {
		// A mutation that completed causes the second round even if it changed nothing: that is
		// the server's "dirty" flag (spec §9.3).
		result.Rounds = 2
		result.Status = r.secondRound()
	}
	result.Steps = a.steps
	if p.modules {
		result.Warnings = warnings(a.steps)
	}
	if object := r.draft.Object(); result.Status == nil && a.Object != nil && object != a.Object && !tree.Equal(a.Object.Object, object.Object) {
		result.Object = object.Object
	}
	r.end()
	return result, true
}

// leave adds the LeftOut of a selection to that of the Decision, with the names that Steps use.
func (a *Admission) leave(p policies, left []binding.LeftOut) {
	for _, o := range left {
		o.Stage = a.stage.Name
		o.Policy, o.Binding = p.named(o.Policy, o.Binding)
		a.leftOut = append(a.leftOut, o)
	}
}

// named returns the names that Steps use for a policy and a binding.
func (p policies) named(policy, binding string) (string, string) {
	switch {
	case p.rule != nil:
		return p.rule(policy, -1), ""
	case p.modules:
		return policy, ""
	}
	return policy, binding
}

// noObject is why mutations are skipped for a CONNECT without options.
const noObject = "the request has no object"

// run holds the state of one request in the policies' stage, and buffers that the next request
// reuses. A Decision must not retain any part of it.
type run struct {
	state
	selection binding.Selection
	draft     policy.Draft // of the current object, in the version of Request.Kind
	failures  []failure    // why invocations cannot run, by index in the selection
}

// state is the part of a run that is reset for the next request.
type state struct {
	*Admission
	policies

	number  int // of the round
	denials []denial

	namespace   *unstructured.Unstructured
	namespaceOK bool
	old         map[schema.GroupVersionKind]*unstructured.Unstructured

	completed bool // some mutation completed in round 1
	twice     bool // round 2 has to handle some invocation of round 1 again
	again     map[identity]bool
}

// failure is the error that prevents an invocation from running. aboutPolicy is false if the
// error is about the binding.
type failure struct {
	err         error
	aboutPolicy bool
}

func (r *run) begin(a *Admission, p policies) {
	r.Admission, r.policies = a, p
	n := expected(r.selection.Invocations)
	a.steps = make([]Step, 0, n)
	r.draft.Reset(a.Object, n)
	a.startClock()
}

func (r *run) end() {
	r.draft.Reset(nil, 0)
	r.selection.Reset()
	clear(r.failures)
	r.state = state{}
}

// expected estimates how many steps a request has.
func expected(selected []binding.Invocation) int {
	n := 0
	for i := range selected {
		if selected[i].Mode != api.Enforce {
			continue
		}
		p := selected[i].Policy
		steps := max(1, len(p.Mutations()))
		if p.Object().Spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy {
			steps *= 2
		}
		n += steps
	}
	return n
}

// identity identifies an invocation in both rounds (spec §3.4).
type identity struct{ policy, binding, paramNamespace, paramName string }

func identityOf(inv *binding.Invocation) identity {
	id := identity{policy: inv.Policy.Name(), binding: inv.Binding}
	if inv.Params != nil {
		id.paramNamespace, id.paramName = inv.Params.GetNamespace(), inv.Params.GetName()
	}
	return id
}

// secondRound runs the invocations for the current object (spec §9.3). It only selects them
// again if a selector may have read something that has changed.
func (r *run) secondRound() *metav1.Status {
	object := r.draft.Object()
	switch {
	case !r.selection.Stands(object):
		r.index.SelectInto(&r.selection, r.ctx, r.Request, object)
		r.leave(r.policies, r.selection.LeftOut)
	case !r.twice:
		return interrupted(r.ctx, r.Request)
	}
	return r.round()
}

// round runs the selected invocations. It returns the status that ends the request, or nil.
func (r *run) round() *metav1.Status {
	r.number++
	r.stepTime()
	if order := r.options.Order; order != nil && !r.modules && r.rule == nil {
		r.selection.Invocations = order(r.selection.Invocations)
	}
	runnable, beside := r.configure()
	if runnable {
		if status := r.fetchNamespace(); status != nil {
			return status
		}
	}
	if runnable || beside {
		selected := r.selection.Invocations
		for i := range selected {
			switch inv := &selected[i]; {
			case inv.Mode != api.Enforce:
				if r.number == 1 {
					r.deferShadow(inv)
				}
			case r.failures[i].err != nil:
			default:
				if status := r.invoke(inv); status != nil {
					return status
				}
			}
		}
	}
	if runnable {
		if status := r.restoreVersion(); status != nil {
			return status
		}
	}
	if len(r.denials) > 0 {
		return deniedStatus(r.Request, r.draft.Object(), r.denials)
	}
	return nil
}

// configure determines which invocations can run and reports the errors of the others. It
// returns whether one of the enforced invocations can run, and whether there is one that is not
// enforced.
func (r *run) configure() (runnable, beside bool) {
	selected := r.selection.Invocations
	r.failures = slices.Grow(r.failures[:0], len(selected))[:len(selected)]
	for i := range selected {
		inv := &selected[i]
		if inv.Mode != api.Enforce {
			r.failures[i], beside = failure{}, true
			continue
		}
		f := failure{inv.Err, inv.PolicyError}
		if f.err == nil {
			f = r.convertible(inv.Kind)
		}
		r.failures[i] = f
		if r.number == 1 && !r.twice {
			r.twice = f.err != nil || r.returns(inv)
		}
		switch {
		case f.err == nil:
			runnable = true
		case f.aboutPolicy && i > 0 && r.failures[i-1].aboutPolicy && sameBinding(inv, &selected[i-1]):
			// The server converts once per binding, not per parameter.
		default:
			r.configurationError(inv, f)
		}
	}
	return runnable, beside
}

// returns reports whether the second round has to handle an invocation that can run: its
// mutations run again, or its conversion or its conditions may fail.
func (r *run) returns(inv *binding.Invocation) bool {
	spec := &inv.Policy.Object().Spec
	return inv.Kind != r.Request.Kind || len(spec.MatchConditions) > 0 ||
		spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy
}

// restoreVersion restores the apiVersion of a custom resource if JSON patches changed it. The
// server converts the object back to the version of the request once all invocations are done.
// It can do so from any version of the resource's definition; from others the request fails
// (k8s.io/apiserver …/mutating/dispatcher.go, k8s.io/apiextensions-apiserver
// …/conversion/converter.go). For built-in kinds such a patch has failed before.
func (r *run) restoreVersion() *metav1.Status {
	object := r.draft.Object()
	if object == nil || object.Object["apiVersion"] == r.Request.Object.Object["apiVersion"] {
		return nil
	}
	object = r.draft.Keep()
	got, home := object.GroupVersionKind(), r.Request.Object.GroupVersionKind()
	from := got
	from.Kind = home.Kind
	back, err := r.options.convert(WithVersion(object, from), from, home)
	switch {
	case err == nil && back != nil:
		home.Kind = got.Kind // as on the server, which does not restore it
		r.draft.Replace(WithVersion(back, home))
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

// convertible returns why the request's objects cannot be converted to the version that a
// policy matched. ErrNoConversion is not a failure yet: the server can convert to the policy's
// version but not back, so the mutations fail.
func (r *run) convertible(kind schema.GroupVersionKind) failure {
	if kind == r.Request.Kind {
		return failure{}
	}
	_, err := r.options.convert(r.draft.Object(), r.Request.Kind, kind)
	if err == nil {
		_, err = r.oldObject(kind)
	}
	if err == nil || errors.Is(err, ErrNoConversion) {
		return failure{}
	}
	return failure{err, true}
}

// oldObject returns the request's old object in another version, converted once.
func (r *run) oldObject(kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	if r.Request.OldObject == nil || kind == r.Request.Kind {
		return r.Request.OldObject, nil
	}
	if old, ok := r.old[kind]; ok {
		return old, nil
	}
	old, err := r.options.convert(r.Request.OldObject, r.Request.Kind, kind)
	if err != nil {
		return nil, err
	}
	if r.old == nil {
		r.old = map[schema.GroupVersionKind]*unstructured.Unstructured{}
	}
	r.old[kind] = old
	return old, nil
}

// fetchNamespace fetches the request's namespace, which every policy may read. A Namespace
// object has none, although its request has its name as namespace.
func (r *run) fetchNamespace() *metav1.Status {
	kind := r.Request.RequestKind
	if kind.Empty() {
		kind = r.Request.Kind
	}
	if r.namespaceOK || r.Request.Namespace == "" || kind == (schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}) {
		return nil
	}
	ns, err := r.index.Namespace(r.ctx, r.Request.Namespace)
	if err != nil {
		if status := immediateStatus(err); status != nil {
			return status
		}
		return immediateStatus(apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, r.Request.Namespace))
	}
	r.namespace, r.namespaceOK = ns, true
	return nil
}
