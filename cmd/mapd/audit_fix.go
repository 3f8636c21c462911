//go:build !server

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/mapd-project/mapd/internal/operate/audit"
	"github.com/mapd-project/mapd/internal/operate/existing"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/api"
)

// fixFlags are the flags of audit for writing objects.
type fixFlags struct {
	on, yes    bool
	selects    []string
	dryRun     string
	undoFile   string
	undo       string
	recordsOf  string
	pods       bool
	patience   time.Duration
	selections []audit.Selection // parsed from selects
}

func (f *fixFlags) add(fl *pflag.FlagSet) {
	fl.BoolVar(&f.on, "fix", false, "write the results that --select chooses")
	fl.StringArrayVar(&f.selects, "select", nil, "with --fix: all, or the results that meet all criteria of policy=NAME,kind=KIND,namespace=NAME,name=NAME; with policy, only the changes of that policy are written; repeatable")
	choiceVar(fl, &f.dryRun, "dry-run", "none", ": with --fix or --undo, server has the API server check what would be written, and nothing is", "none", "server")
	fl.BoolVarP(&f.yes, "yes", "y", false, "with --fix: write without asking")
	fl.StringVar(&f.undoFile, "undo-file", "mapd-audit-undo.yaml", "with --fix: new file for what the objects were before")
	fl.BoolVar(&f.pods, "replace-pods", false, "with --fix or --undo: also write what replaces Pods, such as the template of a Deployment, one workload after the other; without it these objects are left out")
	fl.DurationVar(&f.patience, "rollout-timeout", 10*time.Minute, "with --replace-pods: how long the rollout of a workload may go without progress; after that, no other workload is written")
	fl.StringVar(&f.undo, "undo", "", "undo the writes that a --undo-file records, the last one first, where nobody has changed the field since; "+fromCluster+" is what mapd serve has written for bindings with "+api.ExistingAnnotation+": fix")
	fl.StringVar(&f.recordsOf, "undo-namespace", defaultNamespace, "with --undo "+fromCluster+": the namespace of mapd")
}

func (f *fixFlags) check(a *auditFlags) error {
	switch {
	case f.undo != "" && (f.on || len(a.policies)+len(a.base) > 0 || a.state != ""):
		return usagef("audit: --undo stands for itself: it needs no policies and goes neither with --fix nor with --state")
	case !f.on && len(f.selects) > 0:
		return usagef("audit: --select is for --fix")
	case !f.on && f.undo == "" && f.dryRun == "server":
		return usagef("audit: --dry-run is for --fix and --undo; without them nothing is written")
	case !f.on && f.undo == "" && f.pods:
		return usagef("audit: --replace-pods is for --fix and --undo; without them nothing is written")
	case f.patience <= 0:
		return usagef("audit: --rollout-timeout %s: must be positive", f.patience)
	case !f.on:
		return nil
	case len(f.selects) == 0:
		return usagef("audit: --fix writes what --select chooses, and nothing is chosen; --select all is everything")
	case a.operation != "update":
		return usagef("audit: --fix writes objects that exist; leave --operation %s out", a.operation)
	case len(a.base) > 0 || a.state != "" || a.output != "table":
		return usagef("audit: --fix goes neither with --base nor with --state nor with -o")
	}
	for _, text := range f.selects {
		s, err := audit.ParseSelection(text)
		if err != nil {
			return usagef("audit: --select %s: %w", text, err)
		}
		slices.Sort(s.Policies)
		if len(f.selections) > 0 && !slices.Equal(s.Policies, f.selections[0].Policies) {
			return usagef("audit: --select %s: all have to name the same policies; run it once for each", text)
		}
		f.selections = append(f.selections, s)
	}
	if f.dryRun == "server" {
		return nil
	}
	if _, err := os.Lstat(f.undoFile); err == nil {
		return usagef("audit: --undo-file %s: it exists; give another name", f.undoFile)
	}
	return nil
}

// policies returns the names of the policies that run; empty means all.
func (f *fixFlags) policies() []string {
	if len(f.selections) == 0 {
		return nil
	}
	return f.selections[0].Policies
}

// writer returns an audit.Writer for objects of a cluster.
func (f *fixFlags) writer(c *audit.Cluster, notes *notes) audit.Writer {
	w := audit.Writer{Cluster: c, DryRun: f.dryRun == "server", ReplacePods: f.pods, Patience: f.patience}
	if notes.terminal {
		w.Waiting = notes.waiting
	}
	return w
}

// run finds the selected objects, and writes them.
func (f *fixFlags) run(ctx context.Context, s streams, notes *notes, o audit.Options, qps float32) error {
	if o.Set.Incomplete {
		printProblems(s.err, o.Set.Problems)
		return &codedError{exitUnreachable, errors.New("audit: nothing is written, because not everything could be read that policies depend on")}
	}
	// Only the names of the selected objects are kept; each is read and evaluated again before
	// it is written.
	var chosen []audit.Reference
	var plan audit.Plan
	o.Each = func(r *audit.Result) error {
		if len(r.Changes) > 0 && slices.ContainsFunc(f.selections, func(s audit.Selection) bool { return s.Has(r) }) {
			chosen = append(chosen, audit.Reference{Resource: r.Resource, Namespace: r.Namespace, Name: r.Name})
			plan.Add(r.Replaces)
		}
		return nil
	}
	if notes.terminal {
		o.Progress = notes.audited
	}
	r, err := audit.Run(ctx, o)
	notes.done()
	if err != nil {
		return &codedError{exitUnreachable, fmt.Errorf("audit: %w", err)}
	}
	printProblems(s.err, r.Notes)
	undo := audit.UndoFile{Name: f.undoFile}
	fixer := audit.Fixer{Writer: f.writer(o.Cluster, notes), Set: o.Set, Asking: o.Asking, Before: undo.Add, Refused: undo.Drop}
	fmt.Fprint(s.out, plan.Text(&fixer.Writer, qps, false))
	asker := &asker{in: bufio.NewReader(s.in), out: s.err, colour: report.Colour(notes.colour)}
	if !f.yes && !fixer.DryRun {
		fixer.Confirm = asker.ask
	}
	counts := map[audit.Outcome]int{}
	for _, of := range chosen {
		outcome, why, err := fixer.Fix(ctx, of)
		notes.clear()
		if err == errQuit {
			break
		}
		if err != nil {
			printOutcomes(s.out, counts)
			_, _ = undo.Close()
			return &codedError{exitPartial, fmt.Errorf("audit: %s: %w", f.undoText(&undo), err)}
		}
		counts[outcome]++
		printOutcome(s.out, of.Resource.GVK.Kind+" "+strings.TrimPrefix(of.Namespace+"/"+of.Name, "/"), outcome, why)
	}
	printOutcomes(s.out, counts)
	written, err := undo.Close()
	switch {
	case err != nil:
		return &codedError{exitPartial, err}
	case written:
		notes.say("mapd audit --undo %s puts back what was\n", f.undoFile)
	}
	if r.Incomplete() {
		notes.fail("some kinds could not be read; mapd audit says which\n")
	}
	if r.Incomplete() || bad(counts) {
		return &codedError{code: exitPartial}
	}
	return nil
}

func (f *fixFlags) undoText(undo *audit.UndoFile) string {
	if _, err := os.Stat(undo.Name); err == nil {
		return "--undo " + undo.Name + " puts back what was written until"
	}
	return "nothing was written"
}

func bad(counts map[audit.Outcome]int) bool {
	for outcome, n := range counts {
		if n > 0 && !outcome.OK() {
			return true
		}
	}
	return false
}

func printOutcome(w io.Writer, title string, outcome audit.Outcome, why string) {
	text := title + ": " + string(outcome)
	if why != "" {
		text += ": " + why
	}
	fmt.Fprintln(w, report.Line(text))
}

func printOutcomes(w io.Writer, counts map[audit.Outcome]int) {
	var parts []string
	for outcome, n := range counts {
		parts = append(parts, fmt.Sprintf("%d %s", n, outcome))
	}
	if len(parts) == 0 {
		parts = []string{"nothing that is chosen would change"}
	}
	slices.Sort(parts)
	fmt.Fprintln(w, strings.Join(parts, ", "))
}

// records returns the undo records of the objects to restore, from files or from the cluster.
func (f *fixFlags) records(ctx context.Context, c *auditCluster) ([]*audit.Undo, error) {
	if f.undo != fromCluster {
		undo, err := audit.ReadUndoFile(f.undo)
		if err != nil {
			return nil, &codedError{exitUsage, fmt.Errorf("audit: --undo: %w", err)}
		}
		return undo, nil
	}
	undo, err := existing.ReadRecords(ctx, c.kube, f.recordsOf)
	if err != nil {
		return nil, &codedError{exitUnreachable, fmt.Errorf("audit: --undo %s: %w", fromCluster, err)}
	}
	return undo, nil
}

// restore restores objects, the last written one first.
func (f *fixFlags) restore(ctx context.Context, s streams, c *audit.Cluster, undo []*audit.Undo, qps float32) error {
	counts := map[audit.Outcome]int{}
	notes := newNotes(s.err)
	w := f.writer(c, notes)
	plan := audit.PlanUndo(undo)
	fmt.Fprint(s.out, plan.Text(&w, qps, true))
	for _, u := range slices.Backward(undo) {
		outcome, why, err := w.Restore(ctx, u)
		notes.clear()
		if err != nil {
			printOutcomes(s.out, counts)
			return &codedError{exitUnreachable, fmt.Errorf("audit: %w", err)}
		}
		counts[outcome]++
		printOutcome(s.out, u.Title(), outcome, why)
	}
	printOutcomes(s.out, counts)
	if bad(counts) {
		return &codedError{code: exitPartial}
	}
	return nil
}

// asker asks a person before each write.
type asker struct {
	in     *bufio.Reader
	out    io.Writer
	colour report.Colour
	always bool
}

// errQuit is returned when the user stops the writing.
var errQuit = errors.New("quit")

func (a *asker) ask(r *audit.Result) (bool, error) {
	if a.always {
		return true, nil
	}
	if err := r.WriteDiff(a.out, a.colour); err != nil {
		return false, err
	}
	for {
		fmt.Fprint(a.out, "write it? yes, no, all or quit: ")
		answer, err := a.in.ReadString('\n')
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return true, nil
		case "n", "no":
			return false, nil
		case "a", "all":
			a.always = true
			return true, nil
		case "q", "quit":
			return false, errQuit
		}
		if err != nil {
			return false, errQuit
		}
	}
}
