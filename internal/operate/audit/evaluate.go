package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/memory"
	"github.com/mapd-project/mapd/pkg/openapi"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Asking says which request is evaluated for each object.
type Asking struct {
	// Operation is CREATE, or UPDATE with the same object as the old one.
	Operation admissionv1.Operation
	User      authenticationv1.UserInfo
	// Exempt are the namespaces that mapd's webhook does not reach: only policies that the API
	// server runs itself apply there.
	Exempt []string
	// Timeout bounds the evaluation of one object.
	Timeout time.Duration
	// Exceptions makes results list the exceptions that hold for objects, and what changes when
	// each of them ends, instead of the present effect of policies.
	Exceptions bool
	// Memory bounds the memory of all evaluations together; nil does not.
	Memory *memory.Budget
}

// request returns the request for an object or, if u is nil, a request for its kind.
func (a *Asking) request(r *Resource, u *unstructured.Unstructured) *policy.Request {
	kind := "UpdateOptions"
	if a.Operation == admissionv1.Create {
		kind = "CreateOptions"
	}
	req := &policy.Request{
		Kind: r.GVK, Resource: r.GVR, RequestKind: r.GVK, RequestResource: r.GVR, Operation: a.Operation, UserInfo: a.User,
		Options: map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": kind},
	}
	if u == nil {
		if r.Namespaced {
			req.Namespace = "default"
		}
		return req
	}
	req.UID, req.Name, req.Namespace, req.Object = u.GetUID(), u.GetName(), u.GetNamespace(), u
	if r.GVK.Group == "" && r.GVK.Kind == "Namespace" {
		req.Namespace = u.GetName() // spec §6.1
	}
	if a.Operation == admissionv1.Create {
		req.Object = asNew(u)
	} else {
		req.OldObject = u
	}
	return req
}

// asNew returns an object without what a server adds at its creation.
func asNew(u *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: make(map[string]any, len(u.Object))}
	for name, v := range u.Object {
		if name != "status" {
			out.Object[name] = v
		}
	}
	if meta, ok := u.Object["metadata"].(map[string]any); ok {
		kept := make(map[string]any, len(meta))
		for name, v := range meta {
			switch name {
			case "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink":
			default:
				kept[name] = v
			}
		}
		out.Object["metadata"] = kept
	}
	return out
}

// reaches reports whether any policy reaches a namespace.
func (s *Set) reaches(a *Asking, namespace string) bool {
	return s.native != nil || namespace == "" || !slices.Contains(a.Exempt, namespace)
}

// admit runs the policies on a request within the bounds of time and memory.
func (s *Set) admit(ctx context.Context, a *Asking, req *policy.Request) (d *engine.Decision, err error) {
	e := s.whole
	if req.Namespace != "" && slices.Contains(a.Exempt, req.Namespace) {
		if e = s.native; e == nil {
			return &engine.Decision{Object: req.Object}, nil
		}
	}
	return a.admit(ctx, e, req)
}

// admit runs an engine within the bounds of time and memory.
func (a *Asking) admit(ctx context.Context, e *engine.Engine, req *policy.Request) (d *engine.Decision, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %s", engine.PanicText(v))
		}
	}()
	req.Memory = a.Memory.Open()
	defer req.Memory.Close()
	ctx, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	d = e.Admit(ctx, req)
	switch refused := req.Memory.Refused(); {
	case refused != nil:
		return nil, refused
	case d.Status != nil && ctx.Err() != nil:
		return nil, fmt.Errorf("the policies took longer than %s", a.Timeout)
	}
	return d, nil
}

// judge returns the result for an object of a list, nil if policies do nothing to it. exempt: no
// policy reaches the object. base may be nil.
func (a *Asking) judge(ctx context.Context, s, base *Set, of *Resource, item json.RawMessage) (r *Result, exempt bool) {
	u, err := decode(item, *of)
	if err != nil {
		return &Result{APIVersion: of.GVK.GroupVersion().String(), Kind: of.GVK.Kind, Error: short(err.Error(), maxText)}, false
	}
	req := a.request(of, u)
	if !s.reaches(a, req.Namespace) && (base == nil || !base.reaches(a, req.Namespace)) {
		return nil, true
	}
	r = newResult(u)
	d, err := s.admit(ctx, a, req)
	if err != nil {
		r.Error = short(err.Error(), maxText)
		return r, false
	}
	if a.Exceptions {
		return a.excepted(ctx, s, of, u, d), false
	}
	before := req.Object
	var was *engine.Decision
	if base != nil {
		again := a.request(of, u)
		again.Object = before
		if was, err = base.admit(ctx, a, again); err != nil {
			r.Error = short(err.Error(), maxText)
			return r, false
		}
		if was.Status == nil {
			before = was.Object
		} else {
			r.DeniedBefore = short(was.Status.Message, maxText)
		}
	}
	s.tell(r, d, before, u)
	if a.Operation == admissionv1.Update && d.Status == nil && base == nil {
		r.Replaces = replacement(u.Object, d.Object.Object)
	}
	if r.Denied != "" && r.DeniedBefore != "" { // with a base, only the difference counts
		r.Denied, r.DeniedBefore, r.By = "", "", nil
	}
	if was != nil && len(r.Changes) == 0 && r.Denied == "" && r.DeniedBefore == "" {
		return nil, false
	}
	if len(r.Changes) == 0 && len(r.By) == 0 && r.Denied == "" && r.DeniedBefore == "" {
		return nil, false
	}
	return r, false
}

func newResult(u *unstructured.Unstructured) *Result {
	return &Result{
		APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), Owner: GitOpsOwner(u), Controller: metav1.GetControllerOf(u),
	}
}

// tell adds to r what a decision does to before, which is u as it was evaluated.
func (s *Set) tell(r *Result, d *engine.Decision, before, u *unstructured.Unstructured) {
	r.By = s.actors(d, u)
	if d.Status != nil {
		if r.Denied = short(d.Status.Message, maxText); r.Denied == "" {
			r.Denied = "denied"
		}
		return
	}
	if r.DeniedBefore != "" || d.Object == before {
		return
	}
	r.Changes, r.MoreChanges = s.differences(u, before, d.Object)
}

// actors returns the policies that changed something or failed, or would have if they were
// enforced.
func (s *Set) actors(d *engine.Decision, u *unstructured.Unstructured) (out []Actor) {
	add := func(steps []engine.Step, mode api.Mode, after *unstructured.Unstructured) {
		for i := range steps {
			s.addActor(&out, &steps[i], mode, u, after)
		}
	}
	add(d.Steps, api.Enforce, d.Object)
	for i := range d.Stages {
		r := &d.Stages[i]
		if r.Stage.Mode != api.Enforce {
			add(r.Steps, r.Stage.Mode, r.Object)
		}
		for _, sh := range r.Shadows {
			add(sh.Steps, sh.Mode, sh.After)
		}
	}
	return out
}

// addActor adds a step of a policy to its Actor, for a policy in a mode.
func (s *Set) addActor(out *[]Actor, step *engine.Step, mode api.Mode, before, after *unstructured.Unstructured) {
	if step.Outcome != engine.Changed && step.Outcome != engine.Failed {
		return
	}
	stage := step.Stage
	if stage == engine.PolicyStage {
		stage = ""
	}
	at := slices.IndexFunc(*out, func(a Actor) bool {
		return a.Stage == stage && a.Policy == step.Policy && a.Binding == step.Binding
	})
	if at < 0 {
		if len(*out) == maxChanges {
			return
		}
		at = len(*out)
		a := Actor{Stage: stage, Policy: step.Policy, Binding: step.Binding, Mode: s.modes[[2]string{step.Policy, step.Binding}]}
		if mode != api.Enforce {
			a.Mode = mode.String()
		}
		*out = append(*out, a)
	}
	a := &(*out)[at]
	if step.Outcome == engine.Failed {
		if a.Error == "" {
			a.Error = short(step.Err.Error(), maxText)
			if step.Ignored {
				a.Error += " (ignored: failurePolicy)"
			}
		}
		return
	}
	for _, p := range step.Paths() {
		for _, p := range leaves(p, before, after) {
			if f := fieldName(p); !slices.Contains(a.Fields, f) && len(a.Fields) < maxChanges {
				a.Fields = append(a.Fields, f)
			}
		}
	}
}

// leaves returns the pointers to the values below a pointer to an object that after has and
// before lacks. A policy that sets the first label sets metadata.labels, but readers count
// labels.
func leaves(pointer string, before, after *unstructured.Unstructured) []string {
	now, _ := at(after, pointer).(map[string]any)
	if _, was := at(before, pointer).(map[string]any); was || len(now) == 0 || len(now) > maxChanges {
		return []string{pointer}
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if _, inner := now[name].(map[string]any); inner && len(out) < maxChanges {
			out = append(out, leaves(pointer+tree.Pointer(name), before, after)...)
		} else {
			out = append(out, pointer+tree.Pointer(name))
		}
	}
	return out
}

// at returns the value at a pointer through objects and lists, nil if there is none.
func at(u *unstructured.Unstructured, pointer string) any {
	tokens, err := tree.ParsePointer(pointer)
	if u == nil || err != nil {
		return nil
	}
	var v any = u.Object
	for _, t := range tokens {
		switch in := v.(type) {
		case map[string]any:
			v = in[t]
		case []any:
			i, err := strconv.Atoi(t)
			if err != nil || i < 0 || i >= len(in) {
				return nil
			}
			v = in[i]
		default:
			return nil
		}
	}
	return v
}

// kindOf returns the schema of a kind, nil if it is not known.
func (s *Set) kindOf(u *unstructured.Unstructured) *openapi.Kind {
	kind, err := s.types.Kind(u.GroupVersionKind())
	if err != nil {
		return nil
	}
	return kind
}

// Trace runs the policies on an object, and records the object before and after each mutation.
func (s *Set) Trace(ctx context.Context, a *Asking, r *Resource, u *unstructured.Unstructured) (*engine.Decision, error) {
	req := a.request(r, u)
	if req.Namespace != "" && slices.Contains(a.Exempt, req.Namespace) {
		return &engine.Decision{Object: req.Object}, nil
	}
	return a.admit(ctx, s.whole.With(func(o *engine.Options) { o.Trace = true }), req)
}
