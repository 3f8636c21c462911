package main

import (
	"context"
	"errors"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/tree"
)

// A Question is what to evaluate. Only Objects may be left out besides what its
// fields say: then documents are checked.
type Question struct {
	// Documents are policies, bindings and whatever they need.
	Documents []Text `json:"documents"`
	Objects   []Text `json:"objects"`

	Kubernetes string `json:"kubernetes,omitempty"` // a minor; empty: the newest
	Namespace  string `json:"namespace,omitempty"`  // of objects that name none; empty: default
	Unbound    bool   `json:"unbound,omitempty"`    // bind policies without a binding to everything

	// Old are the objects before an update.
	Old         []Text                    `json:"old,omitempty"`
	Operation   string                    `json:"operation,omitempty"` // empty: CREATE, or UPDATE with Old
	Subresource string                    `json:"subresource,omitempty"`
	DryRun      bool                      `json:"dryRun,omitempty"`
	User        authenticationv1.UserInfo `json:"user,omitzero"` // empty: an administrator
}

// A Text is YAML or JSON with a name, which errors call it by.
type Text struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// An Answer has either errors of the documents or results, one for each object in
// their order.
type Answer struct {
	Errors  []Fault  `json:"errors,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	Results []Result `json:"results,omitempty"`
}

// A Fault is an error and where it is. Lines and columns count from 1; 0 means that
// they are not known.
type Fault struct {
	File     string `json:"file,omitempty"`
	Document int    `json:"document,omitempty"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Message  string `json:"message"`
}

// A Result is what policies made of one object. If Error is set, it could not be
// evaluated.
type Result struct {
	Name    string        `json:"name,omitempty"`
	Error   *Fault        `json:"error,omitempty"`
	Verdict string        `json:"verdict,omitempty"` // changed, unchanged, no match or denied
	Refusal string        `json:"refusal,omitempty"` // why it was denied
	Text    string        `json:"text,omitempty"`    // the object after the policies
	Patch   []tree.Op     `json:"patch,omitempty"`
	Diff    []mapd.Change `json:"diff,omitempty"`
	Steps   []Step        `json:"steps,omitempty"`
	Summary string        `json:"summary,omitempty"`
	// FilledIn are fields that a server fills in after the policies.
	FilledIn []string `json:"filledIn,omitempty"`
}

// A Step is one thing that a policy did, or why it did nothing.
type Step struct {
	Stage    string   `json:"stage"`
	Policy   string   `json:"policy"`
	Binding  string   `json:"binding,omitempty"`
	Param    string   `json:"param,omitempty"`
	Mutation int      `json:"mutation"` // -1: the step is about the whole policy
	Outcome  string   `json:"outcome"`
	Paths    []string `json:"paths,omitempty"`
	Reason   string   `json:"reason,omitempty"` // why it was skipped
	Error    string   `json:"error,omitempty"`
	Cost     int64    `json:"cost,omitempty"` // in units of CEL
}

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
