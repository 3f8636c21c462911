package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/lookup"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/tree"
)

// setRun is the state of one request in a Set.
type setRun struct {
	*Admission
	set *Set

	key             kindKey     // of the current object
	candidates      *candidates // for key
	namespace       *unstructured.Unstructured
	namespaceLabels labels.Set

	*setBuffers
	woken     bool // some of awake may be true
	relabeled bool // the current member has changed the object's labels
	asks      bool // the object may have a tree.Pending
	excepting *binding.Excepting

	draft *policy.Draft
	in    policy.Input // input of all members
	pass  int
	// answered is the object after the last pass, with the answers of external sources.
	answered *unstructured.Unstructured
}

// decide runs the Set on the object, in which the request's namespace is set during the run
// (Gatekeeper spec §9.3).
func (r *setRun) decide(namespace string) (result Result) {
	object := r.Object
	start := withNamespace(object, namespace)
	r.setBuffers = r.set.buffers.Get().(*setBuffers)
	defer r.leave()
	if r.addMatching(start.Object); len(r.list) == 0 {
		return Result{}
	}
	r.draft = policy.NewDraft(start)
	r.in = r.input(r.draft)
	r.in.Namespace = r.namespace
	r.startClock()
	passes, err := r.passes()
	result.Steps, result.Rounds = r.steps, passes
	switch {
	case err != nil:
		if result.Status = interrupted(r.ctx, r.Request); result.Status == nil {
			result.Status = refusedStatus(err)
		}
		return result
	case passes == 0:
		return result
	}
	// Whether the object has a namespace depends on the client, so restore that.
	original, _ := stringField(object.Object, "namespace")
	after := withNamespace(r.answered, original)
	if settled := sameNumbers(object.Object, after.Object).(map[string]any); !tree.Same(settled, object.Object) {
		result.Object = settled
	}
	return result
}

// leave clears r's buffers for the next run.
func (r *setRun) leave() {
	if r.woken {
		clear(r.awake)
	}
	r.list = r.list[:0]
	r.set.buffers.Put(r.setBuffers)
}

// passes runs all passes and returns their number, including one that failed; 0 if the first
// one did not change the object (Gatekeeper spec §8.2).
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
		return r.pass, r.answer()
	}
	return r.set.passes, fmt.Errorf("mutation not converging: mutation %s not converging for %s", r.Request.UID, nameOf(r.draft.Object()))
}

func (r *setRun) onePass() error {
	for i := 0; i < len(r.list); i++ {
		m := r.list[i]
		if r.pass > 1 && !r.awake[m] {
			continue
		}
		r.awake[m] = false
		before := r.draft.Object()
		if err := r.runMember(m); err != nil {
			return err
		}
		after := r.draft.Object()
		if after == before {
			continue
		}
		for _, w := range r.set.options.Members[m].Wakes {
			r.awake[w], r.woken = true, true
		}
		if key := keyOf(after.Object, r.Request, r.key.namespaced); key != r.key {
			r.changeKind(key)
			i = r.indexUpTo(m)
		} else if r.relabeled && r.candidates.labels {
			r.addMatching(after.Object)
			i = r.indexUpTo(m)
		}
		r.relabeled = false
	}
	return nil
}

// changeKind replaces the candidates by those for another kind, all of which have to run.
func (r *setRun) changeKind(key kindKey) {
	r.key, r.candidates = key, r.set.candidates(key)
	for _, m := range r.candidates.members {
		r.awake[m] = true
	}
	r.woken, r.list = true, r.list[:0]
	r.addMatching(r.draft.Object().Object)
}

// addMatching adds the candidates to the list that may match the current object. It removes
// none, since runMember decides whether a member matches.
func (r *setRun) addMatching(object map[string]any) {
	c := r.candidates
	set, plain := plainLabels(object)
	if !plain || r.key.namespaced && r.namespace == nil {
		r.list = append(r.list[:0], c.members...)
		return
	}
	found := append(r.found[:0], c.table.Always...)
	found = c.table.Find(found, lookup.Object, set)
	if r.key.namespaced {
		found = c.table.Find(found, lookup.Namespace, rawLabels(r.namespace.Object))
		found = c.table.FindOne(found, lookup.Name, "", r.Request.Namespace)
	}
	n := len(r.list)
	for _, g := range found {
		if _, has := slices.BinarySearch(r.list[:n], g.members[0]); !has && r.mayMatch(g.match, set) {
			r.list = append(r.list, g.members...)
		}
	}
	clear(found)
	r.found = found[:0]
	if len(r.list) > n {
		slices.Sort(r.list)
	}
}

// mayMatch reports whether members of a Match may match an object with these labels.
func (r *setRun) mayMatch(m *Match, set lookup.Labels) bool {
	switch {
	case m == nil:
		return true
	case m.Labels != nil && !m.Labels.Matches(set):
		return false
	case r.key.isNamespace():
		return true
	case r.key.namespaced && m.NamespaceSelector != nil && !m.NamespaceSelector.Matches(r.labelsOfNamespace()):
		return false
	}
	return m.Namespace == nil || m.Namespace(r.Request.Namespace)
}

// indexUpTo returns the index in the list of the last member that is not greater than m.
func (r *setRun) indexUpTo(m int) int {
	at, found := slices.BinarySearch(r.list, m)
	if !found {
		at--
	}
	return at
}

// touchesLabels reports whether one of the JSON pointers leads to an object's labels.
func touchesLabels(pointers []string) bool {
	const at = "/metadata/labels"
	return slices.ContainsFunc(pointers, func(p string) bool {
		return strings.HasPrefix(at, p) || strings.HasPrefix(p, at+"/")
	})
}

// runMember runs one member if it matches.
func (r *setRun) runMember(m int) error {
	if status := interrupted(r.ctx, r.Request); status != nil {
		return errors.New(status.Message)
	}
	member := &r.set.options.Members[m]
	if s := member.Match; s != nil && s.NamespaceSelector != nil && !r.selects(s.NamespaceSelector) {
		return nil
	}
	if x := r.excepting.From(member.Name); x != nil {
		r.leaveMember(m, x)
		return nil
	}
	p := member.Policy
	if p.Err() != nil {
		return r.refuse(m, r.stepOf(member), p.Err())
	}
	r.in.Params, r.in.Object, r.cost = member.Params, r.selected(), 0
	match, err := matches(r.ctx, p, r.in)
	conditions := spent{r.cost, r.stepTime(), r.draft.TakeTrace()}
	if err != nil {
		return r.refuse(m, r.stepOf(member), err)
	}
	if !match.OK {
		return nil
	}
	for i, mutation := range p.Mutations() {
		step := r.stepOf(member)
		step.Mutation, step.ConditionCost, step.ConditionTime, step.ConditionTrace = i, conditions.cost, conditions.time, conditions.trace
		conditions = spent{}
		if err := r.mutate(member.Name, mutation, r.in, step); err != nil {
			return r.refuse(m, step, err)
		}
		r.relabeled = r.relabeled || touchesLabels(step.paths)
		r.asks = r.asks || member.Asks && step.Outcome == Changed
	}
	return nil
}

// leaveMember records, once, that an exception excludes the object from a member, if the member
// matches.
func (r *setRun) leaveMember(m int, x *binding.Exception) {
	o := binding.LeftOut{Stage: r.stage.Name, Policy: r.set.options.Members[m].Name, Mode: r.stage.Mode, Exception: x}
	if slices.Contains(r.leftOut, o) {
		return
	}
	if whyNot := r.set.options.WhyNot; whyNot == nil || whyNot(m, r.selected(), r.Request, r.namespace) == "" {
		r.leftOut = append(r.leftOut, o)
	}
}

// stepOf adds a step for a member.
func (r *setRun) stepOf(member *Member) *Step {
	if r.steps == nil {
		r.steps = make([]Step, 0, min(len(r.list), 128))
	}
	return r.step(r.pass, member.Name, "", member.Params)
}

// refuse records in a step that its member failed, and returns the error for the client.
func (r *setRun) refuse(m int, step *Step, err error) error {
	step.Outcome, step.Err = Failed, err
	if explain := r.set.options.Explain; explain != nil && interrupted(r.ctx, r.Request) == nil {
		if e := explained(explain, m, r.draft.Object(), r.selected(), r.Request, r.namespace); e != nil {
			step.Err = e
			return e
		}
	}
	return fmt.Errorf("mutation %s for mutator %s failed for %s: %w", r.Request.UID, step.Policy, nameOf(r.draft.Object()), err)
}

// explained returns the result of explain, nil if that panics.
func explained(explain func(int, *unstructured.Unstructured, *unstructured.Unstructured, *policy.Request, *unstructured.Unstructured) error,
	m int, obj, selected *unstructured.Unstructured, req *policy.Request, ns *unstructured.Unstructured) (err error) {
	defer func() {
		if recover() != nil {
			err = nil
		}
	}()
	return explain(m, obj, selected, req, ns)
}

// selects reports whether a member's namespaceSelector matches the current object (Gatekeeper
// spec §7.3).
func (r *setRun) selects(s labels.Selector) bool {
	object := r.draft.Object().Object
	if r.key.isNamespace() {
		return s.Matches(labelsOf(r.selected().Object))
	}
	if namespace, _ := stringField(object, "namespace"); namespace == "" && r.namespace == nil {
		return true
	}
	return s.Matches(r.labelsOfNamespace())
}

func (r *setRun) labelsOfNamespace() labels.Set {
	if r.namespaceLabels == nil && r.namespace != nil {
		r.namespaceLabels = labelsOf(r.namespace.Object)
	}
	return r.namespaceLabels
}

// nameOf returns the name of an object as Gatekeeper's errors have it.
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
