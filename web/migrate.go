package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/mapd-project/mapd/internal/author/migrate"
	"github.com/mapd-project/mapd/internal/author/verify"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
)

// mutators reads the input of mapd migrate gatekeeper from texts.
func mutators(texts []Text) (*migrate.Input, []Fault) {
	if err := small(texts); err != nil {
		return nil, faults(err)
	}
	in := migrate.NewInput()
	var errs []error
	n := 0
	for _, t := range texts {
		for d, err := range manifest.ReadStream(t.Name, strings.NewReader(t.Text)) {
			if n++; n > maxDocuments {
				return nil, faults(fmt.Errorf("there are more than %d documents", maxDocuments))
			}
			if err == nil && d.Object != nil {
				err = in.Add(d.Object, d)
			}
			if err != nil {
				errs = append(errs, err)
			}
		}
	}
	if err := in.Settle(); err != nil {
		errs = append(errs, err)
	}
	return in, allFaults(errs)
}

// migrate returns what mapd migrate gatekeeper writes.
func (d *desk) migrate(ctx context.Context, q MigrateQuestion) (*MigrateAnswer, error) {
	in, wrong := mutators(q.Documents)
	if wrong != nil {
		return &MigrateAnswer{Errors: wrong}, nil
	}
	if in.Empty() {
		return &MigrateAnswer{}, nil
	}
	_, r, err := in.Translate(ctx, translate.Options{})
	if err != nil {
		return nil, err
	}
	a := &MigrateAnswer{Notes: r.Notes, Summary: r.Totals()}
	for _, e := range r.Mutators {
		entry := Entry{Name: e.Mutator, Verdict: string(e.Verdict), File: e.File, Policy: e.Policy, With: e.With}
		for _, n := range e.Notes {
			entry.Notes = append(entry.Notes, n.String())
		}
		a.Entries = append(a.Entries, entry)
	}
	for _, f := range r.Files {
		a.Files = append(a.Files, Text{Name: f.Name, Text: string(f.Data)})
	}
	return a, nil
}

// verify compares mutators with the policies of migrate on generated objects.
func (d *desk) verify(ctx context.Context, q VerifyQuestion) (*VerifyAnswer, error) {
	if q.Count < 0 || q.Count > maxGenerated {
		return nil, fmt.Errorf("count: want 1 to %d, or nothing", maxGenerated)
	}
	in, wrong := mutators(q.Documents)
	if wrong != nil {
		return &VerifyAnswer{Errors: wrong}, nil
	}
	a := &VerifyAnswer{Seed: cmp.Or(q.Seed, verify.DefaultSeed), Count: cmp.Or(q.Count, generated)}
	if in.Empty() {
		return a, nil
	}
	units, _, err := in.Translate(ctx, translate.Options{})
	if err != nil {
		return nil, err
	}
	v := in.Verifier(units, translate.Options{}, verify.Options{})
	v.CheckGenerated(ctx, a.Seed, a.Count)
	for _, c := range v.Comparisons() {
		out := Comparison{Comparison: c, Unexpected: c.Unexpected(), Summary: migrate.Result(c)}
		if c.First != nil {
			out.Text = migrate.Show(c.First)
		}
		a.Comparisons = append(a.Comparisons, out)
	}
	return a, nil
}

// generated is the default number of objects that are generated for a comparison.
const generated = 200
