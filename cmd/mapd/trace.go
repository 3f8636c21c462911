//go:build !server

package main

import (
	"context"
	"slices"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/explain"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// traceFormat is the output format with the traces of --trace as JSON.
const traceFormat = "trace.json"

// trace writes one line for an object.
func (p *printer) trace(r *mapd.Result) error {
	if !r.Denied() {
		if _, err := marshal(r.Object(), ""); err != nil { // the result cannot be written as JSON
			return err
		}
	}
	line := struct {
		named
		Changed bool             `json:"changed"`
		Steps   []explain.Traced `json:"steps"`
	}{namedOf(r), r.Changed(), r.Trace()}
	if line.Denied != "" && slices.ContainsFunc(line.Steps, func(t explain.Traced) bool { return t.Error == explain.HiddenError }) {
		line.Denied = explain.HiddenError // which quotes that error
	}
	out, err := marshal(line, "")
	if err != nil {
		return err
	}
	return p.line(out)
}

// admit runs the policies on a request. If nothing changed because a condition is false, it
// runs them again observed, to show the values of the condition.
func (e *evaluation) admit(ctx context.Context, req *mapd.Request) *mapd.Result {
	r := e.policies.Admit(ctx, req)
	unmet := func(s engine.Step) bool {
		return s.Outcome == engine.Skipped && s.ConditionCost+s.Cost > 0 && s.ConditionTrace == nil
	}
	if e.notes.quiet || e.many() || r.Denied() || r.Changed() || len(r.Decision.Asked()) > 0 || !slices.ContainsFunc(r.Decision.Steps, unmet) {
		return r
	}
	if observed, err := r.Observe(ctx); err == nil {
		return observed
	}
	return r
}

// many reports whether there are too many policies to explain without a flag.
func (e *evaluation) many() bool {
	return len(e.policies.Policies())+e.policies.Mutators()+len(e.policies.Kubewarden()) > maxExplained
}

// summary returns a text about what policies did to an object.
func (e *evaluation) summary(r *mapd.Result) string {
	if e.flags.trace {
		return r.TraceText(true)
	}
	return r.Summary()
}
