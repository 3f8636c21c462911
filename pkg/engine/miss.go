package engine

import (
	"context"
	"iter"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/binding"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Miss is a member of a stage that did nothing with a request, and the reason.
type Miss struct {
	Stage *Stage
	// Miss is set for policies.
	binding.Miss
	// Member and Reason are set for members of a Set, and Member for Kyverno's policies. Reason
	// is empty if there is an Exception.
	Member, Reason string
}

// Misses returns the members of the stages that do not match a request, with the first
// criterion that the request does not satisfy, in the order in which they would have run. d is
// e's decision for the request. Members that left a Step are not included: the Step says why
// one was skipped. Misses evaluates the criteria again, so that Admit has no cost for it.
// Stages that are not enforced, and those after one that refused the request, are not included.
func (e *Engine) Misses(ctx context.Context, req *policy.Request, d *Decision) iter.Seq[Miss] {
	return func(yield func(Miss) bool) {
		stages, object := e.Stages(), req.Object
		for i := range stages {
			s := &stages[i]
			record := d.Stage(s.Name)
			runner, ok := s.Runner.(interface {
				misses(context.Context, *policy.Request, *unstructured.Unstructured) iter.Seq[Miss]
			})
			if ok && s.Mode == api.Enforce {
				for m := range runner.misses(ctx, req, object) {
					if m.Stage = s; !m.ran(record) && !yield(m) {
						return
					}
				}
			}
			if record != nil && s.Mode == api.Enforce {
				if object = record.Object; record.Status != nil {
					return
				}
			}
		}
	}
}

// ran reports whether the member has a Step in the Record, from a later round.
func (m *Miss) ran(r *Record) bool {
	if r == nil {
		return false
	}
	for _, s := range r.Steps {
		switch {
		case m.Member != "" && (s.Policy == m.Member || m.Policy != nil && strings.HasPrefix(s.Policy, m.Member+"/")),
			m.Member == "" && s.Policy == m.Policy.Name() && (m.Binding == nil || s.Binding == m.Binding.Name()):
			return true
		}
	}
	return false
}

func (p policies) misses(ctx context.Context, req *policy.Request, object *unstructured.Unstructured) iter.Seq[Miss] {
	return func(yield func(Miss) bool) {
		for m := range p.index.Misses(ctx, req, object) {
			miss := Miss{Miss: m}
			if p.rule != nil {
				miss.Member = p.rule(m.Policy.Name(), -1)
			}
			if !yield(miss) {
				return
			}
		}
	}
}

func (s *Set) misses(ctx context.Context, req *policy.Request, object *unstructured.Unstructured) iter.Seq[Miss] {
	return func(yield func(Miss) bool) {
		if object == nil {
			return
		}
		b, skip, err := s.begin(ctx, req, object)
		if err != nil {
			return
		}
		subject, excepting := withNamespace(object, b.namespace), s.options.Sources.Excepting(ctx, req, object)
		for i := range s.options.Members {
			m := Miss{Member: s.options.Members[i].Name, Reason: skip}
			if (skip == "" || skip == noCandidates) && s.options.WhyNot != nil {
				m.Reason = s.options.WhyNot(i, subject, req, b.ns)
			}
			if m.Reason == "" {
				m.Exception = excepting.From(m.Member)
			}
			if (m.Reason != "" || m.Exception != nil) && !yield(m) {
				return
			}
		}
	}
}
