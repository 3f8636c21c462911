package binding

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/lookup"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Selection holds what matches one request, and buffers that the next request reuses.
type Selection struct {
	Invocations []Invocation
	// LeftOut are the bindings that match the request and do not run on it.
	LeftOut []LeftOut

	request *policy.Request
	at      time.Time                  // time at which exceptions are evaluated, the same in all rounds of request
	object  *unstructured.Unstructured // the object that selectors were matched against
	labels  bool                       // a selector was matched against its labels
	others  bool                       // the result also depends on parameters or on an error

	found []*group
	met   []met
	order []uint64
}

// LeftOut is a policy by a binding that matches the request and does not run: because of the
// exception, or, if Exception is nil, because the binding's share does not include the object.
// Its parameters and conditions were not evaluated.
type LeftOut struct {
	// Stage is the stage of the Decision that has the LeftOut.
	Stage           string
	Policy, Binding string
	Mode            api.Mode
	Exception       *Exception
}

// Stands reports whether selecting again with another current object is certain to give the
// same result, because the result depended on nothing but the object's labels and those are the
// same.
func (s *Selection) Stands(object *unstructured.Unstructured) bool {
	if s.others {
		return false
	}
	return !s.labels || s.object == object || sameLabels(s.object, object)
}

// Reset clears s and keeps its buffers.
func (s *Selection) Reset() {
	clear(s.Invocations)
	clear(s.LeftOut)
	clear(s.met)
	*s = Selection{Invocations: s.Invocations[:0], LeftOut: s.LeftOut[:0], found: s.found, met: s.met[:0], order: s.order[:0]}
}

// SelectInto writes to s what matches a request, in order: configuration errors and
// invocations. Finding that no policy matches has a cost that does not depend on the number of
// policies. The former contents of s are overwritten.
//
// Selectors are matched against object: the request's in the first round, in the second the
// result of the first (spec §9.2).
func (ix *Index) SelectInto(s *Selection, ctx context.Context, req *policy.Request, object *unstructured.Unstructured) {
	k := keyOf(req)
	c := ix.candidates(&k)
	at := s.at
	if s.request != req {
		at = time.Time{}
	}
	s.Reset()
	s.request, s.at, s.object = req, at, object
	if len(c.tables) == 0 && !c.namespaces && !c.all {
		return
	}
	t := target{ctx: ctx, ix: ix, req: req, resource: k.resource, object: object, at: at}
	ix.meet(s, &t, c)
	ix.invoke(s, &t)
	s.labels, s.others, s.at = t.labels, t.others, t.at
}

// MayMeet reports whether the rules of any policy and its binding match requests of the kind of
// req, whatever their names and labels are, or return an error for them.
func (ix *Index) MayMeet(req *policy.Request) bool {
	k := keyOf(req)
	c := ix.candidates(&k)
	return len(c.tables) > 0 || c.namespaces || c.all
}

// met is a group that matches a request.
type met struct {
	group *group
	// invocation holds what the invocations of all pairs have in common.
	invocation Invocation
	namespaced bool // the parameters have namespaces
}

// meet finds the groups that match a request.
func (ix *Index) meet(s *Selection, t *target, c *candidates) {
	var labels lookup.Labels
	all := c.all
	if c.namespaces {
		// If the labels cannot be fetched, every policy must be tested, so that each reports
		// the error under its own failurePolicy.
		var err error
		labels, err = t.namespaceLabels()
		all = all || err != nil
	}
	if all {
		for _, r := range ix.buckets {
			for _, g := range r.groups {
				s.ask(t, c, g)
			}
		}
		return
	}
	for _, table := range c.tables {
		for _, g := range table.Always {
			s.ask(t, c, g)
		}
		found := s.found[:0]
		if table.Uses(lookup.Namespace) {
			found = table.Find(found, lookup.Namespace, labels)
		}
		if table.Uses(lookup.Object) {
			t.labels = true
			set, _ := labelsOf(t.object)
			found = table.Find(found, lookup.Object, set)
			set, _ = labelsOf(t.req.OldObject)
			found = table.Find(found, lookup.Object, set)
		}
		found = table.FindOne(found, lookup.Name, "", t.req.Name)
		for _, g := range found {
			s.ask(t, c, g)
		}
		clear(found)
		s.found = found[:0]
	}
}

// ask adds a group to s.met if it matches the request.
func (s *Selection) ask(t *target, c *candidates, g *group) {
	m := met{group: g, invocation: Invocation{HasParams: g.params.given}}
	inv := &m.invocation
	h, failed, err := g.policy.test(t, c.answers[g.policy.rules])
	if err != nil {
		t.others = true
		inv.Err, inv.PolicyError = err, true
		s.met = append(s.met, m)
		return
	}
	if failed != Satisfied {
		return
	}
	inv.Resource, inv.Kind = t.resolve(h)
	if m.namespaced, err = t.paramScope(g); err != nil {
		inv.Err, inv.PolicyError = err, true
		s.met = append(s.met, m)
		return
	}
	if g.alone {
		return
	}
	if g.binding != nil {
		_, failed, err := g.binding.test(t, c.answers[g.binding.rules])
		if failed != Satisfied {
			return
		}
		t.others = t.others || err != nil
		inv.Err = err
	}
	s.met = append(s.met, m)
}

// invoke adds the invocations of the groups in s.met, in the order of their pairs.
func (ix *Index) invoke(s *Selection, t *target) {
	for i := range s.met {
		t.expected += len(s.met[i].group.pairs)
	}
	t.expected = min(t.expected, maxExpected)
	switch len(s.met) {
	case 0:
	case 1:
		for _, i := range s.met[0].group.pairs {
			ix.invokePair(s, t, &s.met[0], i)
		}
	default:
		for i := range s.met {
			for _, pair := range s.met[i].group.pairs {
				s.order = append(s.order, uint64(pair)<<32|uint64(i))
			}
		}
		slices.Sort(s.order)
		last := int32(-1)
		for _, o := range s.order {
			// A group may be found twice, by the labels of the object and of the old one.
			if pair := int32(o >> 32); pair != last {
				ix.invokePair(s, t, &s.met[uint32(o)], pair)
				last = pair
			}
		}
	}
}

func (ix *Index) invokePair(s *Selection, t *target, m *met, i int32) {
	pair := &ix.pairs[i]
	inv := m.invocation
	inv.Policy, inv.Mode = pair.entry.policy, pair.mode
	if inv.PolicyError {
		inv.Mode = t.errorMode(pair.entry)
		// Its other bindings have returned the same error.
		if inv.Mode == api.Off {
			return
		}
		if n := len(s.Invocations); n == 0 || !s.Invocations[n-1].PolicyError || s.Invocations[n-1].Policy != inv.Policy {
			s.add(t, inv)
		}
		return
	}
	if inv.Mode == api.Off {
		return
	}
	inv.Binding = pair.binding.Name()
	if !t.inShare(pair.binding) {
		s.LeftOut = append(s.LeftOut, LeftOut{Policy: inv.Policy.Name(), Binding: inv.Binding, Mode: inv.Mode})
		return
	}
	if x := t.exception(inv.Policy.Name(), inv.Binding); x != nil {
		s.LeftOut = append(s.LeftOut, LeftOut{Policy: inv.Policy.Name(), Binding: inv.Binding, Mode: inv.Mode, Exception: x})
		return
	}
	ref := &pair.binding.params
	if inv.Err != nil || !inv.HasParams || ref.ParamRef == nil {
		s.add(t, inv)
		return
	}
	t.others = true
	params, err := ref.collect(t.ctx, ix.src.Params, m.group.gvk, m.namespaced, t.req.Namespace)
	if err != nil {
		inv.Err = err
		s.add(t, inv)
		return
	}
	for _, param := range params {
		inv.Params = param
		s.add(t, inv)
	}
}

// maxExpected bounds the initial capacity of Invocations.
const maxExpected = 128

func (s *Selection) add(t *target, inv Invocation) {
	if cap(s.Invocations) == 0 {
		s.Invocations = make([]Invocation, 0, t.expected)
	}
	s.Invocations = append(s.Invocations, inv)
}

// paramScope reports whether the parameters of a group's policies have namespaces.
func (t *target) paramScope(g *group) (namespaced bool, err error) {
	if !g.params.given {
		return false, nil
	}
	switch {
	case g.gvkErr != nil:
		err = g.gvkErr
	case t.ix.src.Params == nil:
		err = unknownParamKind(g.gvk)
	default:
		if namespaced, err = t.ix.src.Params.Kind(g.gvk); err != nil {
			err = unknownParamKind(g.gvk)
		}
	}
	if err != nil {
		t.others = true
		return false, err
	}
	return namespaced, nil
}

// resolve returns the resource and kind of a hit. A hit on the request's own resource
// leaves both empty.
func (t *target) resolve(h hit) (schema.GroupVersionResource, schema.GroupVersionKind) {
	own := t.req.RequestKind
	if own.Empty() {
		own = t.req.Kind
	}
	switch {
	case h.resource.Empty():
		return t.resource, own
	case h.kind.Kind != own.Kind && t.req.SubResource != "":
		// A Scale or an Eviction is the same kind under every version of its
		// resource.
		return h.resource, own
	default:
		return h.resource, h.kind
	}
}
