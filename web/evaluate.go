package main

import (
	"context"
	"fmt"
	"slices"

	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/mapd-project/mapd/internal/author/suite/cases"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/explain"
	"github.com/mapd-project/mapd/pkg/mapd"
)

var limits = Limits{Expression: celconfig.PerCallLimit, Mutation: cel.MutationBudget, Conditions: cel.ConditionBudget}

// evaluate runs the policies on the objects.
func (d *desk) evaluate(ctx context.Context, q EvaluateQuestion) (*Answer, error) {
	for _, part := range q.Only {
		if !slices.Contains([]string{textPart, diffPart, patchPart, stepsPart, summaryPart}, part) {
			return nil, fmt.Errorf("a result has no part %q", part)
		}
	}
	r, wrong := d.readPart(ctx, &q.Question, q.Trace)
	if wrong != nil {
		return &Answer{Errors: wrong}, nil
	}
	a := &Answer{Errors: r.faults, LeftOut: r.left}
	note := func(n mapd.Note) {
		if n.Kind == mapd.Unbound {
			a.Unbound = append(a.Unbound, n.About...)
			return
		}
		a.Notes = append(a.Notes, n.String())
	}
	for _, n := range r.policies.Notes() {
		note(n)
	}
	r.opts.Note = note
	for _, o := range r.objects {
		if o.fault != nil {
			a.Results = append(a.Results, Result{Error: o.fault})
		} else {
			a.Results = append(a.Results, r.evaluate(ctx, o.document, &q))
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	for _, n := range r.policies.Assumed() {
		note(n)
	}
	if q.Trace {
		a.Limits = &limits
	}
	return a, nil
}

func (r *read) evaluate(ctx context.Context, d *mapd.Document, q *EvaluateQuestion) Result {
	made, err := r.policies.Eval(ctx, d, r.opts)
	if err != nil {
		return Result{Name: d.Name(), Error: &faults(err)[0]}
	}
	wants := func(part string) bool { return q.Only == nil || slices.Contains(q.Only, part) }
	out := Result{Name: made.Request.Name(), Verdict: verdict(made), Refusal: made.Refusal()}
	if wants(textPart) {
		out.FilledIn, out.Defaults, out.Missing, out.Warnings = made.FilledIn(), made.AddedDefaults(), made.Missing(), made.Warnings()
	}
	if wants(summaryPart) {
		out.Summary = made.Summary()
	}
	for _, s := range made.Decision.Steps {
		if !wants(stepsPart) {
			break
		}
		step := Step{
			Stage: s.Stage, Policy: s.Policy, Binding: s.Binding, Param: s.Param, Mutation: s.Mutation,
			Outcome: s.Outcome.String(), Paths: s.Paths(), Reason: s.Reason, Cost: s.Cost,
		}
		if s.Err != nil {
			step.Error = s.Err.Error()
		}
		out.Steps = append(out.Steps, step)
	}
	if q.Trace {
		out.Trace = made.Trace()
	}
	if q.WhyNot {
		for reason := range made.WhyNot(ctx) {
			if out.WhyNot = append(out.WhyNot, reason); len(out.WhyNot) == maxReasons {
				break
			}
		}
	}
	if made.Denied() {
		return out
	}
	if wants(patchPart) {
		out.Patch = made.Patch()
	}
	if !wants(textPart) && !wants(diffPart) {
		return out
	}
	text, err := made.Text()
	if err != nil {
		return Result{Name: out.Name, Error: &faults(d.Errorf("%w", err))[0]}
	}
	out.Text = string(text)
	kind := made.Request.Admission.Kind
	for _, c := range report.Hide(kind.Group, kind.Kind, cases.AsReport(made.Diff())) {
		if wants(diffPart) {
			out.Diff = append(out.Diff, mapd.Change(c))
		}
		if wants(textPart) && c.After == nil && !c.Moved {
			out.Removed = append(out.Removed, c.Path)
		}
	}
	if wants(textPart) && made.Changed() {
		lines := report.BlameLines(text, explain.BlameOf(made.Decision))
		for _, l := range lines[:min(len(lines), maxReasons)] {
			out.Lines = append(out.Lines, Line{l.First, l.Last, l.Path, l.Stage, l.Policy, l.Binding, l.Param, l.Mutation})
		}
	}
	return out
}

func verdict(r *mapd.Result) string {
	switch {
	case r.Denied():
		return "denied"
	case r.Changed():
		return "changed"
	case len(r.Decision.Steps) > 0:
		return "unchanged"
	}
	return "no match"
}
