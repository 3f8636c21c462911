//go:build !server

package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	kjson "sigs.k8s.io/json"

	"github.com/mapd-project/mapd/internal/author/benchmark"
	"github.com/mapd-project/mapd/internal/document/manifest"
)

type benchFlags struct {
	eval        evalFlags
	set         func(flag string) bool // reports whether the user gave the flag
	duration    time.Duration
	iterations  int
	concurrency int
	save        string
	compare     string
	limits      benchmark.Limits
}

const benchLong = `Measure what requests cost with your policies.

Each object becomes the AdmissionReview that a server would send, except for
managedFields, which manifests lack. An AdmissionReview is sent as it is. bench
does in this process what mapd serve does between the body of a request and the
body of its answer: decode, run policies and mutators, patch, encode, count. HTTP,
TLS and the network are not in the figures. Times are for one request; CPU is that
of the whole process, with its garbage collector.

Before measuring, bench answers each request once and applies the patch. It
reports denied objects, and does not measure them; it also reports policies that
fail. Warming up takes a tenth of the time in addition, and the second table
another tenth.

The second table says where the time goes, as the mean over all requests: decode
and encode are for the review and the answer, match is finding policies and
parameters, and a policy is its conditions and mutations. Cost is in CEL units.

--compare prints the figures beside those of an earlier --save. A figure of --check
that is worse by more than --threshold percent and, if it is a time, by at least
--min-threshold is a regression. Allocations and bytes hardly depend on the machine
and its load, and the median of times less than all others, so these are checked
unless --check says otherwise. If times are all that got worse, bench measures up to
three times, and the best of these counts.

Exit codes:
  0  done
  1  an object was denied, or there is a regression
  2  wrong usage, or input that cannot be read
  3  a policy does not compile or validate
  5  some inputs failed, the others were done`

func newBench(s streams) *cobra.Command {
	f := benchFlags{eval: evalFlags{command: "bench"}}
	cmd := &cobra.Command{
		Use:   "bench -p PATH... -f PATH...",
		Short: "Measure what requests cost with your policies",
		Long:  benchLong,
		Example: `  mapd bench -p policies/ -f deployment.yaml --save before.json
  mapd bench -p policies/ -f deployment.yaml --compare before.json --threshold 20`,
		Args: noArguments("-p and -f"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.set = cmd.Flags().Changed
			return runBench(cmd.Context(), s, &f)
		},
	}
	f.eval.addFiles(cmd)
	fl := cmd.Flags()
	fl.SortFlags = false
	choiceVarP(fl, &f.eval.output, "output", "o", "table", "", "table", "json", "yaml")
	fl.DurationVar(&f.duration, "duration", 5*time.Second, "how long to measure in all; the objects share it equally")
	fl.IntVar(&f.iterations, "iterations", 0, "how many requests for each object, instead of --duration")
	fl.IntVar(&f.concurrency, "concurrency", 1, "how many requests at once")
	fl.StringVar(&f.save, "save", "", "write the figures to this file, as JSON")
	fl.StringVar(&f.compare, "compare", "", "compare with the figures of this file")
	fl.StringSliceVar(&f.limits.Figures, "check", benchmark.Stable, "with --compare: the figures that can be regressions, of "+strings.Join(benchmark.FigureNames(), ", "))
	fl.Float64Var(&f.limits.Percent, "threshold", 10, "with --compare: by how many percent a figure may be worse")
	fl.DurationVar(&f.limits.Time, "min-threshold", 5*time.Microsecond, "with --compare: how much longer a time has to be in any case")
	f.eval.addRequest(cmd)
	f.eval.external.add(fl)
	return cmd
}

// check returns an error for wrong usage, before anything is read.
func (f *benchFlags) check() error {
	switch {
	case f.set("duration") && f.set("iterations"):
		return usagef("bench: --duration and --iterations: only one of them")
	case f.duration <= 0:
		return usagef("bench: --duration %s: must be positive", f.duration)
	case f.set("iterations") && f.iterations <= 0:
		return usagef("bench: --iterations %d: must be positive", f.iterations)
	case f.concurrency <= 0:
		return usagef("bench: --concurrency %d: must be positive", f.concurrency)
	case f.compare == "" && (f.set("check") || f.set("threshold") || f.set("min-threshold")):
		return usagef("bench: --check, --threshold and --min-threshold: only with --compare")
	case !(f.limits.Percent >= 0): // also true for NaN
		return usagef("bench: --threshold %v: must not be negative", f.limits.Percent)
	case f.limits.Time < 0:
		return usagef("bench: --min-threshold %s: must not be negative", f.limits.Time)
	}
	names := benchmark.FigureNames()
	if i := slices.IndexFunc(f.limits.Figures, func(name string) bool { return !slices.Contains(names, name) }); i >= 0 || len(f.limits.Figures) == 0 {
		return usagef("bench: --check %s: want some of %s", strings.Join(f.limits.Figures, ","), strings.Join(names, ", "))
	}
	if f.save != "" { // measuring takes long, so check this first
		if _, err := os.Stat(filepath.Dir(f.save)); err != nil {
			return usagef("bench: --save %s: %w", f.save, err)
		}
	}
	return f.eval.check()
}

func runBench(ctx context.Context, s streams, f *benchFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	earlier, err := f.earlier()
	if err != nil {
		return err
	}
	// Without a trace, like a server.
	e, err := newEvaluation(ctx, s, &f.eval, true)
	if err != nil {
		return err
	}
	defer e.close()
	defer e.notes.done()
	b := &bench{evaluation: e, flags: f, names: map[string]int{}, met: map[string]bool{}}
	for d, err := range readDocuments(e.inputs) {
		b.add(ctx, d, err)
	}
	e.noteAssumed()
	b.notePolicies()
	outcome := e.outcome()
	if len(b.requests) == 0 {
		return outcome
	}
	r, err := b.measure(ctx)
	if err != nil {
		return &codedError{exitPartial, err}
	}
	if earlier != nil {
		r.Comparison = benchmark.Compare(earlier, r, f.limits)
		// Other load on the machine makes times longer for a while, but never shorter.
		for try := 2; try <= benchTries && r.Comparison.OnlyTimes(); try++ {
			b.notes.say("note: a time is a regression; measuring again (%d of %d)\n", try, benchTries)
			again, err := b.measure(ctx)
			if err != nil {
				return &codedError{exitPartial, err}
			}
			again.Comparison = benchmark.Compare(earlier, again, f.limits)
			before, _ := r.Comparison.Regressions()
			if now, _ := again.Comparison.Regressions(); now <= before {
				r = again
			}
		}
	}
	if err := b.print(s, r); err != nil {
		return &codedError{exitUsage, err}
	}
	if outcome == nil && r.Comparison != nil {
		if n, _ := r.Comparison.Regressions(); n > 0 {
			return &codedError{code: exitRegression}
		}
	}
	return outcome
}

// earlier reads the file of --compare. It returns nil without the flag.
func (f *benchFlags) earlier() (*benchmark.Result, error) {
	if f.compare == "" {
		return nil, nil
	}
	data, err := manifest.ReadFile(f.compare, manifest.MaxFile)
	if err != nil {
		return nil, usagef("bench: --compare: %w", err)
	}
	r, err := benchmark.Read(data)
	if err != nil {
		return nil, usagef("bench: --compare: %s is not a file that --save wrote: %w", f.compare, err)
	}
	return r, nil
}

func (b *bench) measure(ctx context.Context) (*benchmark.Result, error) {
	r, err := benchmark.Run(ctx, b.policies.Engine(), b.requests, benchmark.Options{
		Duration: b.flags.duration, Iterations: b.flags.iterations, Concurrency: b.flags.concurrency,
	})
	if err != nil {
		return nil, err
	}
	r.Mapd, r.Policies, r.Mutators = version(), len(b.policies.Policies()), b.policies.Mutators()
	read, compile := b.policies.Times()
	r.Setup = benchmark.Setup{Read: float64(read), Compile: float64(compile)}
	return r, nil
}

// benchTries is how often times are measured before a regression is reported.
const benchTries = 3

// enough is how many requests are needed so that about ten are above the 99th percentile.
const enough = 1000

// print prints and saves the figures.
func (b *bench) print(s streams, r *benchmark.Result) error {
	few := 0
	for _, f := range r.Requests {
		if f.Requests < enough {
			few++
		}
	}
	if few > 0 {
		b.notes.say("note: %d of %d rows are of fewer than %d requests, so that p99 depends on a few; a longer --duration helps\n", few, len(r.Requests), enough)
	}
	if r.Comparison != nil {
		b.noteComparison(r.Comparison)
	}
	data, err := benchmark.Marshal(r)
	if err != nil {
		return err
	}
	if b.flags.save != "" {
		if err := os.WriteFile(b.flags.save, data, 0o666); err != nil {
			return err
		}
	}
	switch b.flags.eval.output {
	case "json":
		_, err = s.out.Write(data)
	case "yaml":
		var tree any
		if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &tree); err != nil {
			return err
		}
		_, err = s.out.Write(manifest.Encode(tree))
	default:
		err = r.WriteTable(s.out)
	}
	return err
}

func (b *bench) noteComparison(c *benchmark.Comparison) {
	file := b.flags.compare
	for _, n := range c.Notes {
		b.notes.say("note: %s: %s\n", file, n)
	}
	if len(c.New) > 0 {
		b.notes.say("note: %s has no figures of: %s\n", file, strings.Join(c.New, ", "))
	}
	if len(c.Gone) > 0 {
		b.notes.say("note: %s has figures of what was not measured now: %s\n", file, strings.Join(c.Gone, ", "))
	}
	if n, of := c.Regressions(); n > 0 {
		b.notes.say("%d of %d figures are more than %v%% worse than in %s\n", n, of, c.Threshold, file)
	}
}
