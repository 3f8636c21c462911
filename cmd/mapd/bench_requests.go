//go:build !server

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/mapd-project/mapd/internal/author/benchmark"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/tree"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// bench is one run of bench.
type bench struct {
	*evaluation
	flags    *benchFlags
	requests []benchmark.Request
	names    map[string]int
	met      map[string]bool // the policies that match a request
}

// add prepares the request of one document.
func (b *bench) add(ctx context.Context, d *mapd.Document, err error) {
	if err == nil && d.Object() == nil {
		return // only comments
	}
	sub := b.take(d, err)
	if sub == nil {
		return
	}
	r, err := b.request(ctx, sub)
	if err != nil {
		b.failed = true
		b.notes.say("%s\n", render(d.Errorf("%s: %w", sub.Name(), err)))
		return
	}
	if r != nil {
		b.requests = append(b.requests, *r)
	}
}

// request returns the request to measure for sub, with its checked response. It returns nil if
// sub is denied or takes too long.
func (b *bench) request(ctx context.Context, sub *mapd.Request) (*benchmark.Request, error) {
	body, err := bodyOf(sub)
	if err != nil {
		return nil, err
	}
	req, err := webhook.DecodeReview(body)
	if err != nil {
		return nil, err
	}
	admitting, cancel := context.WithTimeout(ctx, b.flags.eval.timeout)
	defer cancel()
	d := b.policies.Engine().Admit(admitting, req)
	result := b.policies.Result(sub, d)
	if b.late(admitting, result) {
		return nil, nil
	}
	failed := d.Status != nil
	for _, step := range d.Steps {
		b.met[step.Policy] = true
		failed = failed || step.Outcome == engine.Failed
	}
	if failed {
		b.notes.say("%s", result.Summary())
	}
	if d.Status != nil {
		b.denied = true
		b.notes.say("%s: %s\n", sub.Document().Where(), report.Excerpts(result.Refusal()))
		return nil, nil
	}
	code, answer := webhook.NewHandler(webhook.Options{Admitter: b.policies.Engine()}).Review(ctx, body)
	if code != http.StatusOK {
		return nil, fmt.Errorf("the server answered %d: %s", code, bytes.TrimSpace(answer))
	}
	got, err := decisionOf(req, answer)
	switch {
	case err != nil:
		return nil, err
	case got.Status != nil || got.Changed != d.Changed || d.Changed && !tree.Equal(got.Object.Object, d.Object.Object):
		return nil, errors.New("the answer does not say what was decided")
	}
	return &benchmark.Request{Name: b.unique(sub.Name()), Answer: outcome(d), Body: body, Want: answer}, nil
}

// bodyOf returns the review of a request.
func bodyOf(sub *mapd.Request) ([]byte, error) {
	if sub.FromReview() {
		return json.Marshal(sub.Document().Object().Object)
	}
	return reviewOf(sub.Admission)
}

// unique appends a number to a name that is taken.
func (b *bench) unique(name string) string {
	b.names[name]++
	if n := b.names[name]; n > 1 {
		return b.unique(fmt.Sprintf("%s #%d", name, n))
	}
	return name
}

func outcome(d *engine.Decision) string {
	switch {
	case d.Changed:
		return "changed"
	case len(d.Steps) > 0:
		return "unchanged"
	}
	return "no match"
}

// notePolicies prints how many policies are not included in the figures.
func (b *bench) notePolicies() {
	idle := 0
	for _, p := range b.policies.Policies() {
		if !b.met[p.Name()] {
			idle++
		}
	}
	if idle > 0 {
		b.notes.say("note: %d of %d policies meet none of the requests\n", idle, len(b.policies.Policies()))
	}
}
