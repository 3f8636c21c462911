package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// setRun is one request on its way through a Set.
type setRun struct {
	set *Set
	ctx context.Context
	req *policy.Request

	key             kindKey // of the object as it is now
	list            []int   // the members for key
	namespace       *unstructured.Unstructured
	namespaceLabels labels.Set

	draft *policy.Draft
	in    policy.Input // what members see, but for what differs among them
	awake []bool       // members that have to run, by index
	steps []Step
	pass  int
	cost  int64 // of the step under way
	began time.Time
	clock time.Duration // since then, when the last member was through
}

// decide runs the Set on an object, which carries the request's namespace
// meanwhile (Gatekeeper spec §9.3).
func (r *setRun) decide(object *unstructured.Unstructured, namespace string) *Decision {
	d := &Decision{Object: object}
	start := withNamespace(object, namespace)
	r.draft = policy.NewDraft(start)
	r.in = policy.Input{
		Request: r.req, Kind: r.req.Kind, Resource: r.req.Resource, OldObject: r.req.OldObject,
		Namespace: r.namespace, Draft: r.draft, Cost: &r.cost,
	}
	pooled := r.set.awake.Get().(*[]bool)
	r.awake = *pooled
	defer func() {
		clear(r.awake)
		r.set.awake.Put(pooled)
	}()

	r.began = time.Now()
	passes, err := r.passes()
	d.Steps, d.Passes = r.steps, passes
	switch {
	case err != nil:
		if d.Status = interrupted(r.ctx, r.req); d.Status == nil {
			d.Status = refusedStatus(err)
		}
		return d
	case passes == 0:
		return d
	}
	// Whether the name of the namespace was spelled out is the client's choice.
	original, _ := stringField(object.Object, "namespace")
	after := withNamespace(r.draft.Keep(), original)
	if settled := sameNumbers(object.Object, after.Object).(map[string]any); !tree.Same(settled, object.Object) {
		d.Object, d.Changed = &unstructured.Unstructured{Object: settled}, true
	}
	return d
}

// passes runs all passes and returns how many there were, one that failed
// included; 0 if the first one left the object as it was (Gatekeeper spec §8.2).
func (r *setRun) passes() (int, error) {
	for r.pass = 1; r.pass <= r.set.passes; r.pass++ {
		before := r.draft.Keep()
		if err := r.onePass(); err != nil {
			return r.pass, err
		}
		if after := r.draft.Object(); after != before && !tree.Equal(before.Object, after.Object) {
			continue
		}
		if r.pass == 1 {
			return 0, nil
		}
		return r.pass, nil
	}
	return r.set.passes, fmt.Errorf("mutation not converging: mutation %s not converging for %s", r.req.UID, nameOf(r.draft.Object()))
}

func (r *setRun) onePass() error {
	for i := 0; i < len(r.list); i++ {
		m := r.list[i]
		if r.pass > 1 && !r.awake[m] {
			continue
		}
		r.awake[m] = false
		before := r.draft.Object()
		if err := r.member(m); err != nil {
			return err
		}
		after := r.draft.Object()
		if after == before {
			continue
		}
		for _, w := range r.set.options.Members[m].Wakes {
			r.awake[w] = true
		}
		if key := keyOf(after.Object, r.key.operation); key != r.key {
			i = r.become(key, m)
		}
	}
	return nil
}

// become goes on with the members for another kind, all of which have to run,
// and returns where in their list the last member not behind m is.
func (r *setRun) become(key kindKey, m int) int {
	r.key, r.list = key, r.set.candidates(key)
	at := -1
	for i, c := range r.list {
		r.awake[c] = true
		if c <= m {
			at = i
		}
	}
	return at
}

// member runs one member, unless it does not match.
func (r *setRun) member(m int) error {
	if status := interrupted(r.ctx, r.req); status != nil {
		return errors.New(status.Message)
	}
	member := &r.set.options.Members[m]
	if s := member.NamespaceSelector; s != nil && !r.selects(s) {
		return nil
	}
	p := member.Policy
	r.in.Params, r.in.Object, r.cost = member.Params, r.draft.Object(), 0
	if p.Err() != nil {
		return r.refuse(m, r.step(member), p.Err())
	}
	match, err := matches(r.ctx, p, r.in)
	if err != nil {
		return r.refuse(m, r.step(member), err)
	}
	if !match.OK {
		r.clock = time.Since(r.began)
		return nil
	}
	for i, mutation := range p.Mutations() {
		step := r.step(member)
		step.Mutation, step.Type = i, mutation.Type
		before := r.draft.Object()
		r.in.Object = before
		after, err := mutate(r.ctx, member.Name, mutation, r.in)
		now := time.Since(r.began)
		step.Duration, r.clock = now-r.clock, now
		step.Cost, r.cost = r.cost, 0
		if err != nil {
			return r.refuse(m, step, err)
		}
		if after != r.draft.Object() { // made by a mutation that knows no drafts
			r.draft.Replace(after)
		}
		step.Outcome = Unchanged
		if after != before {
			step.Outcome, step.paths = Changed, r.draft.Changed()
			if r.set.options.Trace {
				step.Before, step.After = before, r.draft.Keep()
			}
		}
	}
	return nil
}

// step adds a step, to be filled in.
func (r *setRun) step(member *Member) *Step {
	if r.steps == nil {
		r.steps = make([]Step, 0, min(len(r.list), 128))
	}
	r.steps = append(r.steps, Step{Pass: r.pass, Policy: member.Name, Binding: member.Binding, Mutation: -1})
	s := &r.steps[len(r.steps)-1]
	if member.Params != nil {
		s.Param = member.Params.GetName()
	}
	return s
}

// refuse notes in its step that a member failed and returns what to tell the client.
func (r *setRun) refuse(m int, step *Step, err error) error {
	step.Outcome, step.Err = Failed, err
	if explain := r.set.options.Explain; explain != nil && interrupted(r.ctx, r.req) == nil {
		if e := explained(explain, m, r.draft.Object(), r.req, r.namespace); e != nil {
			step.Err = e
			return e
		}
	}
	return fmt.Errorf("mutation %s for mutator %s failed for %s: %w", r.req.UID, step.Policy, nameOf(r.draft.Object()), err)
}

// explained is Explain; should it panic, there is no explanation.
func explained(explain func(int, *unstructured.Unstructured, *policy.Request, *unstructured.Unstructured) error,
	m int, obj *unstructured.Unstructured, req *policy.Request, ns *unstructured.Unstructured) (err error) {
	defer func() {
		if recover() != nil {
			err = nil
		}
	}()
	return explain(m, obj, req, ns)
}

// selects holds a member's namespaceSelector against the object as it is now
// (Gatekeeper spec §7.3).
func (r *setRun) selects(s labels.Selector) bool {
	object := r.draft.Object().Object
	if r.key.isNamespace() {
		return s.Matches(labelsOf(object))
	}
	if namespace, _ := stringField(object, "namespace"); namespace == "" && r.namespace == nil {
		return true
	}
	if r.namespaceLabels == nil && r.namespace != nil {
		r.namespaceLabels = labelsOf(r.namespace.Object)
	}
	return s.Matches(r.namespaceLabels)
}

// nameOf names an object as Gatekeeper's errors do.
func nameOf(object *unstructured.Unstructured) string {
	apiVersion, _ := object.Object["apiVersion"].(string)
	kind, _ := object.Object["kind"].(string)
	group, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		group = ""
	}
	namespace, _ := stringField(object.Object, "namespace")
	name, _ := stringField(object.Object, "name")
	if name == "" {
		name, _ = stringField(object.Object, "generateName")
	}
	return group + " " + kind + " " + namespace + " " + name
}
