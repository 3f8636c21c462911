package main

import (
	"context"
	"errors"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/mapd-project/mapd/pkg/mapd"
)

func answer(ctx context.Context, q Question) *Answer {
	files := make([]mapd.File, len(q.Documents))
	for i, t := range q.Documents {
		files[i] = mapd.File{Name: t.Name, Data: []byte(t.Text)}
	}
	policies, err := mapd.Load(mapd.Options{Kubernetes: q.Kubernetes, Namespace: q.Namespace, Unbound: q.Unbound}, files...)
	if err != nil {
		return &Answer{Errors: faults(err)}
	}
	a := &Answer{}
	note := func(n mapd.Note) { a.Notes = append(a.Notes, n.String()) }
	for _, n := range policies.Notes() {
		note(n)
	}
	opts := mapd.RequestOptions{
		Operation: admissionv1.Operation(q.Operation), Subresource: q.Subresource, DryRun: q.DryRun, User: q.User, Note: note,
	}
	if len(q.Old) > 0 {
		old, errs := policies.Objects("the objects before the update", read(q.Old))
		for _, err := range errs {
			a.Errors = append(a.Errors, faults(err)...)
		}
		opts.Old = old
	}
	for d, err := range read(q.Objects) {
		if err != nil {
			a.Results = append(a.Results, Result{Error: &faults(err)[0]})
		} else if d.Object() != nil {
			a.Results = append(a.Results, evaluate(ctx, policies, d, opts))
		}
	}
	for _, n := range policies.Assumed() {
		note(n)
	}
	return a
}

// read yields the documents of texts.
func read(texts []Text) func(yield func(*mapd.Document, error) bool) {
	return func(yield func(*mapd.Document, error) bool) {
		for _, t := range texts {
			for d, err := range mapd.Read(t.Name, strings.NewReader(t.Text)) {
				if !yield(d, err) {
					return
				}
			}
		}
	}
}

func evaluate(ctx context.Context, policies *mapd.Policies, d *mapd.Document, opts mapd.RequestOptions) Result {
	r, err := policies.Eval(ctx, d, opts)
	if err != nil {
		return Result{Name: d.Name(), Error: &faults(err)[0]}
	}
	out := Result{
		Name: r.Request.Name(), Verdict: verdict(r), Refusal: r.Refusal(), Summary: r.Summary(), FilledIn: r.FilledIn(),
	}
	for _, s := range r.Decision.Steps {
		step := Step{
			Stage: s.Stage, Policy: s.Policy, Binding: s.Binding, Param: s.Param, Mutation: s.Mutation,
			Outcome: s.Outcome.String(), Paths: s.Paths(), Reason: s.Reason, Cost: s.Cost,
		}
		if s.Err != nil {
			step.Error = s.Err.Error()
		}
		out.Steps = append(out.Steps, step)
	}
	if r.Denied() {
		return out
	}
	text, err := r.Text()
	if err != nil {
		return Result{Name: out.Name, Error: &faults(d.Errorf("%w", err))[0]}
	}
	out.Text, out.Patch, out.Diff = string(text), r.Patch(), r.Diff()
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

// faults returns an error, or each of those that it lists.
func faults(err error) []Fault {
	var several *mapd.LoadError
	if errors.As(err, &several) {
		var out []Fault
		for _, e := range several.Errs {
			out = append(out, faults(e)...)
		}
		return out
	}
	var at *mapd.Error
	if errors.As(err, &at) {
		return []Fault{{at.File, at.Document, at.Line, at.Column, at.Err.Error()}}
	}
	return []Fault{{Message: err.Error()}}
}
