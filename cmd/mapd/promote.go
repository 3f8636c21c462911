//go:build !server

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/mapd-project/mapd/internal/operate/promote"
	"github.com/mapd-project/mapd/internal/operate/replicas"
	"github.com/mapd-project/mapd/internal/output/report"
)

type promoteFlags struct {
	cluster                     clusterFlags
	demote, all, dryRun, window bool
	everywhere                  bool
	files                       []string
	sample                      int
	requests, least             int
	settle, canary, timeout     time.Duration
	output                      string
	replicas                    []string
}

const promoteLong = `Move policies from mapd to the API servers, or back with --demote.

The native policy and its bindings are written beside mapd's. When every API server
runs them, mapd's policy goes to the mode shadow, in which it sees the objects as the native
policies have left them. If it would still change one, everything goes back. When it has
changed nothing in --canary-requests requests, or in those that have come within
--canary-time, mapd's objects are deleted. If fewer than --canary-least have come, nothing is
proven and everything goes back. At every moment each request is mutated, some by both sides.

Therefore a policy is moved only if it is idempotent: run on its own result, it changes
nothing. That is tried on objects of the cluster, on generated ones and on those of -f.
With --allow-window others are moved, too: for a while (--settle) requests are mutated
twice, and there is no canary.

All state is in the objects. After an interruption run the same command again, here or
elsewhere, or go back with --demote. Policies are moved one after the other, and only one
mapd promote works on a cluster at a time.

Exit codes:
  0  the policies are where they should be; with --dry-run: they can be moved
  1  a policy was refused, went back, or could not be moved to the end
  2  wrong usage, or no cluster is configured` + clusterExits

func newPromote(s streams) *cobra.Command {
	var f promoteFlags
	cmd := &cobra.Command{
		Use:   "promote [POLICY...]",
		Short: "Move policies from mapd to the API servers, and back",
		Long:  promoteLong,
		Example: `  mapd promote --dry-run --all
  mapd promote team-labels
  mapd promote --demote team-labels`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), s, args) },
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	f.cluster.add(fl)
	fl.BoolVar(&f.demote, "demote", false, "move native policies back to mapd")
	fl.BoolVar(&f.all, "all", false, "all policies of mapd; with --demote all that were promoted")
	fl.BoolVar(&f.dryRun, "dry-run", false, "print the checks and the steps, and change nothing")
	fl.StringArrayVarP(&f.files, "filename", "f", nil, "objects on which to try that the policy is idempotent; repeatable")
	fl.IntVar(&f.sample, "sample", 200, "how many objects of the cluster to try that on")
	fl.BoolVar(&f.window, "allow-window", false, "also move policies that are not idempotent; for a while requests are mutated twice")
	fl.BoolVar(&f.everywhere, "everywhere", false, "let native policies act in the namespaces that mapd leaves out, too")
	fl.DurationVar(&f.settle, "settle", time.Minute, "how long to wait for the end of requests that began before every API server ran the native policy; servers end requests after their --request-timeout, 1m by default")
	fl.IntVar(&f.requests, "canary-requests", 50, "how many requests mapd and the API servers must agree on; 0: none")
	fl.DurationVar(&f.canary, "canary-time", time.Minute, "how long to wait for that many requests; those that have come until then count")
	fl.IntVar(&f.least, "canary-least", 1, "go back if fewer requests than that were compared within --canary-time; 0: go on without proof")
	fl.DurationVar(&f.timeout, "timeout", time.Minute, "how long one step may wait for API servers and replicas")
	fl.StringArrayVar(&f.replicas, "replica", nil, "URL of a replica of mapd, instead of those of its Service; repeatable")
	choiceVarP(fl, &f.output, "output", "o", "text", "", "text", "json")
	return cmd
}

// promotionReport is what -o json prints for a policy.
type promotionReport struct {
	Policy string                `json:"policy"`
	To     promote.Direction     `json:"to"`
	Checks []promote.CheckResult `json:"findings"`
	Notes  []string              `json:"notes,omitempty"`
	Steps  []string              `json:"steps,omitempty"`
	Result *promote.Result       `json:"result,omitempty"`
	Error  string                `json:"error,omitempty"`
}

func (f *promoteFlags) run(ctx context.Context, s streams, names []string) error {
	switch {
	case f.all == (len(names) > 0):
		return usagef("promote: name policies, or pass --all")
	case f.timeout <= 0 || f.canary <= 0:
		return usagef("promote: --timeout and --canary-time must be positive")
	case f.settle < 0:
		return usagef("promote: --settle must not be negative")
	case f.requests < 0 || f.least < 0 || f.sample < 0:
		return usagef("promote: --canary-requests, --canary-least and --sample must not be negative")
	case f.requests > 0 && f.least > f.requests:
		return usagef("promote: --canary-least must not be above --canary-requests")
	}
	given, err := f.given(s)
	if err != nil {
		return err
	}
	config, err := f.cluster.config()
	if err != nil {
		return usagef("promote: %w", err)
	}
	config.WarningHandler = rest.NoWarnings{}
	ctx, stop := interruptible(ctx, 1<<62)
	defer stop()
	asked := &promotionReplicas{&replicaFinder{Finder: replicas.Finder{Config: config, URLs: f.replicas}, s: s}}
	p, err := f.promoter(ctx, s, config, asked)
	if err != nil {
		return &codedError{exitUndone, fmt.Errorf("promote: %w", err)}
	}
	to := promote.Native
	if f.demote {
		to = promote.Mapd
	}
	work := func(ctx context.Context) error {
		if !f.dryRun {
			if err := p.Sweep(ctx); err != nil {
				return err
			}
		}
		if err := p.Connect(ctx); err != nil {
			return err
		}
		if f.all {
			if names, err = p.Policies(ctx, to); err != nil {
				return err
			}
		}
		return f.policies(ctx, s, p, to, names, given)
	}
	if f.dryRun {
		err = work(ctx)
	} else {
		var namespace string
		if namespace, err = asked.namespace(ctx); err == nil {
			err = p.Alone(ctx, namespace, work)
		}
	}
	var coded *codedError
	if err != nil && !errors.As(err, &coded) {
		err = &codedError{exitUndone, fmt.Errorf("promote: %w", err)}
	}
	return err
}

// given reads the objects of -f.
func (f *promoteFlags) given(s streams) (out []*unstructured.Unstructured, err error) {
	files, err := paths(f.files)
	if err != nil {
		return nil, usagef("promote: %w", err)
	}
	inputs, done, err := rereadable(files, s.in)
	if err != nil {
		return nil, usagef("promote: %w", err)
	}
	defer done()
	for d, err := range readDocuments(inputs) {
		if err != nil {
			return nil, usagef("promote: %w", err)
		}
		if u := d.Object(); u != nil {
			out = append(out, u)
		}
	}
	return out, nil
}

func (f *promoteFlags) promoter(ctx context.Context, s streams, config *rest.Config, asked *promotionReplicas) (*promote.Promoter, error) {
	kube, d, err := clients(config)
	if err != nil {
		return nil, err
	}
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelError})))
	var mu sync.Mutex
	p := &promote.Promoter{
		Config: config, Kubernetes: kube, Dynamic: d, ID: identity(), Patience: f.timeout, Window: f.window,
		Settle: f.settle, CanaryRequests: uint64(f.requests), CanaryLeast: uint64(f.least), CanaryTime: f.canary,
		Replicas: asked,
		Progress: func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			fmt.Fprintln(s.err, report.Printable(fmt.Sprintf(format, args...)))
		},
	}
	// A dry run may be made where mapd is not installed yet.
	if p.Namespace, err = asked.namespace(ctx); err != nil && !f.dryRun {
		return nil, err
	}
	if !f.everywhere {
		if p.Exempt, err = p.Replicas.Exempt(ctx); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// policies checks policies and moves them, one after the other.
func (f *promoteFlags) policies(ctx context.Context, s streams, p *promote.Promoter, to promote.Direction, names []string, given []*unstructured.Unstructured) error {
	var all []*promotionReport
	failed := false
	for _, name := range names {
		r := &promotionReport{Policy: name, To: to, Checks: []promote.CheckResult{}}
		all = append(all, r)
		if err := f.policy(ctx, s, p, r, given); err != nil {
			r.Error = err.Error()
			failed = true
			if f.output == "text" {
				fmt.Fprintln(s.err, "mapd:", report.Printable(err.Error()))
			}
			if ctx.Err() != nil {
				break
			}
		}
		if r.Result != nil && r.Result.Back != "" {
			failed = true
		}
	}
	if f.output == "json" {
		text, err := marshal(all, "  ")
		if err != nil {
			return err
		}
		if _, err := s.out.Write(text); err != nil {
			return err
		}
	} else if len(names) == 0 {
		fmt.Fprintln(s.out, "there are no policies to move")
	}
	if failed {
		return &codedError{code: exitUndone}
	}
	return nil
}

var errRefused = errors.New("not moved")

func (f *promoteFlags) policy(ctx context.Context, s streams, p *promote.Promoter, r *promotionReport, given []*unstructured.Unstructured) error {
	w, err := p.World(ctx, r.Policy)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Policy, err)
	}
	o := promote.Options{To: r.To, Canary: r.To == promote.Native && f.requests > 0, Adopt: !f.all}
	first := promote.Decide(w, o, promote.Proofs{})
	switch {
	case first.Err != nil:
		return fmt.Errorf("%s: %w", r.Policy, first.Err)
	case first.Done:
		r.Result = &promote.Result{Policy: r.Policy, At: r.To}
		f.say(s, "%s is there already: %s", r.Policy, where(r.To))
		return nil
	}
	if first.Back == "" { // a policy that has to go back does so in any case
		subject, notes, err := p.Gather(ctx, w, r.To, f.sample)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Policy, err)
		}
		subject.Given, r.Notes = given, notes
		if r.Checks, err = promote.Check(ctx, subject); err != nil {
			return fmt.Errorf("%s: %w", r.Policy, err)
		}
		if r.To == promote.Native {
			r.Checks = append(r.Checks, p.CheckServers(ctx, w, f.dryRun)...)
		}
		worst := promote.Worst(r.Checks)
		if worst == promote.Window {
			o.Canary = false
		}
		r.Steps = steps(r, o)
		f.sayPlan(s, r)
		if worst == promote.Refuse || worst == promote.Window && !f.window {
			err := fmt.Errorf("%s: %w: see the checks above", r.Policy, errRefused)
			if w.Moving() {
				flags := map[promote.Direction]string{promote.Native: " --demote"}[r.To]
				if worst == promote.Window {
					flags += " --allow-window"
				}
				err = fmt.Errorf("%w\nan earlier run has begun to move it, and every request is still mutated; undo that with: mapd promote%s %s", err, flags, r.Policy)
			}
			return err
		}
	}
	if f.dryRun {
		return nil
	}
	result, err := p.Move(ctx, r.Policy, o)
	if err != nil {
		return err
	}
	r.Result = &result
	switch {
	case result.Back != "":
		f.say(s, "%s went back, %s: %s", r.Policy, where(result.At), result.Back)
	case o.Canary && result.Compared == 0:
		f.say(s, "%s is there: %s; no request was compared in this run", r.Policy, where(result.At))
	case o.Canary:
		f.say(s, "%s is there: %s; both sides agreed on %s", r.Policy, where(result.At), counted(int(result.Compared), "request", "requests"))
	default:
		f.say(s, "%s is there: %s; requests may have been mutated by both sides for %v", r.Policy, where(result.At), result.Both.Round(time.Millisecond))
	}
	return nil
}

func where(d promote.Direction) string {
	if d == promote.Native {
		return "the API servers run it"
	}
	return "mapd runs it"
}

// steps returns descriptions of the steps that will be done.
func steps(r *promotionReport, o promote.Options) []string {
	if r.To == promote.Mapd {
		return []string{
			"write mapd's policy and its bindings, unless they are there",
			"wait until every replica of mapd runs them and every API server calls it",
			"delete the native bindings and then the native policy",
		}
	}
	out := []string{"write the native policy and then its bindings", "wait until every API server runs them"}
	if o.Canary {
		out = append(out, "set mapd's policy to shadow and compare; a difference goes back")
	}
	last := "delete mapd's bindings and then its policy"
	if promote.Worst(r.Checks) == promote.Window {
		last += "; until then requests are mutated by both sides"
	}
	return append(out, last)
}

func (f *promoteFlags) say(s streams, format string, args ...any) {
	if f.output == "text" {
		fmt.Fprintln(s.out, report.Printable(fmt.Sprintf(format, args...)))
	}
}

// sayPlan prints the checks and, of a dry run, the steps.
func (f *promoteFlags) sayPlan(s streams, r *promotionReport) {
	if f.output != "text" {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, to %s:\n", r.Policy, map[promote.Direction]string{promote.Native: "the API servers", promote.Mapd: "mapd"}[r.To])
	for _, x := range r.Checks {
		row := ""
		if x.Row != "" {
			row = " (docs/reference/compat.md, " + x.Row + ")"
		}
		fmt.Fprintf(&b, "  %-7s %s: %s%s\n", x.Level, x.Check, report.Line(x.Text), row)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "  note    %s\n", report.Line(n))
	}
	if f.dryRun {
		for i, step := range r.Steps {
			fmt.Fprintf(&b, "  step %d  %s\n", i+1, step)
		}
	}
	fmt.Fprint(s.out, report.Printable(b.String()))
}
