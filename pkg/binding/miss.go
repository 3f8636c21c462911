package binding

import (
	"context"
	"iter"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mapd-project/mapd/pkg/lookup"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Criterion is one condition of a policy or a binding on a request.
type Criterion uint8

// The criteria, in the order in which Misses tests them. If no rule of several holds, Misses
// reports the criterion of the rule whose first failed criterion comes last.
const (
	// Satisfied means that every criterion holds.
	Satisfied Criterion = iota
	// Bound fails for a policy that has no binding.
	Bound
	// Admissible fails for requests that no policy sees, such as those for policies.
	Admissible
	// Rules stands for all criteria of a rule: the following, up to Excluded.
	Rules
	Group
	Version
	Resource
	Operation
	Scope
	Name
	// Excluded fails if one of the excludeResourceRules matches.
	Excluded
	NamespaceLabels
	ObjectLabels
	// Param fails if there is no parameter and the binding allows that.
	Param
	// Share fails if the binding's share does not include the object.
	Share
	// Excepted fails if an exception from the policy applies.
	Excepted
)

// Miss is a policy or a binding that does not match a request.
type Miss struct {
	Policy *policy.Policy
	// Binding is nil if the policy itself does not match.
	Binding *Binding
	// Criterion is the first one that does not hold.
	Criterion Criterion
	// Rule is the index of the rule, for criteria from Group to Excluded.
	Rule int
	// Selector and Labels are the selector and the labels that it does not match, for
	// NamespaceLabels and ObjectLabels. Labels are nil for an object that has no metadata.
	Selector labels.Selector
	Labels   lookup.Labels
	// Exception is set if Criterion is Excepted.
	Exception *Exception
}

// Misses returns the policies and bindings that SelectInto does not find for the same
// arguments, sorted by name. A policy that does not match is reported once, without its
// bindings. Misses evaluates the same matchers one by one, so that its cost grows with the
// number of policies. A policy or binding for which SelectInto returns an error is not
// reported.
func (ix *Index) Misses(ctx context.Context, req *policy.Request, object *unstructured.Unstructured) iter.Seq[Miss] {
	return func(yield func(Miss) bool) {
		k := keyOf(req)
		t := &target{ctx: ctx, ix: ix, req: req, resource: k.resource, object: object}
		var equivalents []Equivalent
		if ix.src.Equivalents != nil {
			equivalents = ix.src.Equivalents(k.resource)
		}
		entries := ix.entries
		for _, p := range ix.policies {
			if len(entries) == 0 || entries[0].policy != p {
				if !yield(Miss{Policy: p, Criterion: Bound}) {
					return
				}
				continue
			}
			e := &entries[0]
			entries = entries[1:]
			if !e.misses(t, &k, equivalents, yield) {
				return
			}
		}
	}
}

// misses yields the Misses of one policy, and returns what yield returns.
func (e *entry) misses(t *target, k *key, equivalents []Equivalent, yield func(Miss) bool) bool {
	if !admissible(k, t.ix.src.Deletions) {
		return yield(Miss{Policy: e.policy, Criterion: Admissible})
	}
	m, err := e.match.miss(t, k, equivalents)
	if err != nil {
		return e.missesShares(t, yield)
	}
	m.Policy = e.policy
	if m.Criterion != Satisfied {
		return yield(m)
	}
	group := newGroup(groupKey{params: e.params})
	namespaced, err := t.paramScope(group)
	if err != nil {
		return e.missesShares(t, yield)
	}
	for _, b := range e.bindings {
		m := Miss{}
		if b.match != nil {
			if m, err = b.match.miss(t, k, equivalents); err != nil {
				continue
			}
		}
		if m.Criterion == Satisfied {
			m.Criterion, m.Exception = t.leaves(e.policy, b)
		}
		if m.Criterion == Satisfied && e.params.given && b.params.ParamRef != nil {
			if found, err := b.params.collect(t.ctx, t.ix.src.Params, group.gvk, namespaced, t.req.Namespace); err == nil && len(found) == 0 {
				m.Criterion = Param
			}
		}
		if m.Policy, m.Binding = e.policy, b; m.Criterion != Satisfied && !yield(m) {
			return false
		}
	}
	return true
}

// missesShares is misses for a policy with an error. The error only counts if the share of one
// of its bindings includes the request and no exception applies.
func (e *entry) missesShares(t *target, yield func(Miss) bool) bool {
	for _, b := range e.bindings {
		c, x := t.leaves(e.policy, b)
		if c != Satisfied && !yield(Miss{Policy: e.policy, Binding: b, Criterion: c, Exception: x}) {
			return false
		}
	}
	return true
}

// leaves returns why a policy by a binding does not run on a request that both match: Share or
// Excepted; Satisfied if it does run.
func (t *target) leaves(p *policy.Policy, b *Binding) (Criterion, *Exception) {
	if !t.inShare(b) {
		return Share, nil
	}
	if x := t.exception(p.Name(), b.Name()); x != nil {
		return Excepted, x
	}
	return Satisfied, nil
}

// miss returns the first criterion that a request does not satisfy.
func (m *matcher) miss(t *target, k *key, equivalents []Equivalent) (Miss, error) {
	if m.err != nil {
		return Miss{}, m.err
	}
	_, failed, err := m.test(t, m.rules.judge(k, equivalents))
	out := Miss{Criterion: failed}
	switch failed {
	case Rules:
		out.Criterion, out.Rule = m.rules.nearest(k, equivalents, t.req.Name)
	case NamespaceLabels:
		out.Selector = m.namespaces.Selector
		out.Labels, _ = t.namespaceLabels()
	case ObjectLabels:
		out.Selector = m.objects.Selector
		out.Labels, _ = labelsOf(t.object)
	}
	return out, err
}

// nearest returns why no rule matches requests of a key: the index of the rule whose first
// failed criterion comes last, and that criterion.
func (r *ruleset) nearest(k *key, equivalents []Equivalent, name string) (Criterion, int) {
	if i := slices.IndexFunc(r.exclude, func(x rule) bool {
		return len(r.hits([]rule{x}, k, equivalents)) > 0 && (len(x.names) == 0 || slices.Contains(x.names, name))
	}); i >= 0 {
		return Excluded, i
	}
	resources := []schema.GroupVersionResource{k.resource}
	if r.equivalent {
		for _, e := range equivalents {
			resources = append(resources, e.Resource)
		}
	}
	nearest, at := Rules, 0
	for i := range r.rules {
		for _, resource := range resources {
			failed := r.rules[i].fails(k, resource)
			if failed == Satisfied {
				failed = Name
			}
			if failed > nearest {
				nearest, at = failed, i
			}
		}
	}
	return nearest, at
}
