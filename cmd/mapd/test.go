//go:build !server

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mapd-project/mapd/internal/author/coverage"
	"github.com/mapd-project/mapd/internal/author/suite"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// testFlags are the flags of test.
type testFlags struct {
	run      string
	verbose  bool
	count    int
	parallel int
	output   string
	update   bool
	watch    bool
	coverage bool
	html     string
	lcov     string
	generate string
	orders   ordersFlags
	modules  moduleFlags
}

const testLong = `Run the cases of suites, and show how results differ from what was expected.

A suite is a file mapd-test.yaml beside the policies that it is about. Of Kyverno's
tests (kyverno-test.yaml), the results about MutatingAdmissionPolicies and about mutate
rules of Kyverno's own policies run, too; suites of gator are skipped, since they test
ConstraintTemplates. PATH is a
suite, a directory with one, or DIR/... for all suites below a directory; the
default is the current directory. Directories named testdata, vendor or
node_modules, and those that begin with a dot or an underscore, are left out.

--orders goes with neither --update nor coverage.

docs/author/test.md describes the format; docs/mapd-test.schema.json is its JSON schema,
for editors.

Exit codes:
  0  all cases passed, or --update wrote what those that failed should expect
  1  a case failed, or --orders found something
  2  wrong usage, or a suite that cannot be read
  3  a policy does not compile or validate`

func newTest(s streams) *cobra.Command {
	f := testFlags{}
	cmd := &cobra.Command{
		Use:   "test [PATH...]",
		Short: "Run the cases of suites",
		Long:  testLong,
		Example: `  mapd test ./...
  mapd test policies/mapd-test.yaml --run 'docker hub' -v`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return test(ctx, s, &f, args)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.run, "run", "", "run only the cases whose FILE/NAME the regular expression matches")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "print every case and what its policies did")
	fl.IntVar(&f.count, "count", 1, "run each case this many times; the results must be the same")
	fl.IntVar(&f.parallel, "parallel", 0, "how many cases run at once (default as many as there are cores)")
	choiceVarP(fl, &f.output, "output", "o", "text", "", suite.Formats...)
	fl.BoolVar(&f.update, "update", false, "update the expectations of failing cases, after printing the differences")
	fl.BoolVar(&f.watch, "watch", false, "run again after each change of suites, policies and objects")
	fl.BoolVar(&f.coverage, "coverage", false, "print on standard error which parts of the policies the cases did not try")
	fl.StringVar(&f.html, "coverage-html", "", "write the policies with their coverage marked to this file")
	fl.StringVar(&f.lcov, "coverage-lcov", "", "write the coverage to this file, in the format of lcov")
	fl.StringVar(&f.generate, "generate", "", "print a suite for the policies of this file, with cases that reach the branches of their expressions")
	f.orders.add(fl)
	f.modules.add(cmd)
	return cmd
}

func (f *testFlags) options(stderr io.Writer) (suite.Options, error) {
	opts := suite.Options{Count: f.count, Parallel: f.parallel, Verbose: f.verbose, Orders: f.orders.limit()}
	if f.count < 1 || f.parallel < 0 {
		return opts, usagef("test: --count must be at least 1, and --parallel not negative")
	}
	if err := f.orders.check(); err != nil {
		return opts, usagef("test: %w", err)
	}
	if f.orders.on && (f.update || f.covers()) {
		return opts, usagef("test: --orders goes with neither --update nor coverage")
	}
	if f.run != "" {
		re, err := regexp.Compile(f.run)
		if err != nil {
			return opts, usagef("test: --run: %w", err)
		}
		opts.Run = re
	}
	log := slog.New(slog.DiscardHandler)
	if f.verbose {
		log = moduleLog(stderr)
	}
	if _, err := f.modules.loader(log, limitCommand); err != nil {
		return opts, usagef("test: %w", err)
	}
	if f.covers() {
		opts.Env = func(minor string) (*cel.Env, error) {
			return cel.NewEnv(cel.Options{Version: minor, Observe: true})
		}
	}
	opts.Modules = func(local map[string]string) (kubewarden.Loader, error) {
		own := f.modules
		for _, module := range slices.Sorted(maps.Keys(local)) {
			own.local = append(slices.Clip(own.local), module+"="+local[module])
		}
		return own.loader(log, limitCommand)
	}
	return opts, nil
}

func test(ctx context.Context, s streams, f *testFlags, paths []string) error {
	opts, err := f.options(s.err)
	if err != nil {
		return err
	}
	if f.generate != "" {
		if len(paths) > 0 || f.output != "text" || f.update || f.watch || f.orders.on || f.covers() || f.run != "" || f.generate == manifest.Stdin {
			return usagef("test: --generate takes a file of policies, and goes with no other flag")
		}
		return generateSuite(ctx, s, f.generate)
	}
	if f.watch && (f.output != "text" || f.update) {
		return usagef("test: --watch goes with neither -o nor --update")
	}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	if f.watch {
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		return watchTests(ctx, s, f, opts, paths)
	}
	files, err := suite.Find(paths)
	if err != nil {
		return usagef("test: %w", err)
	}
	return testOnce(ctx, s, f, opts, files)
}

func testOnce(ctx context.Context, s streams, f *testFlags, opts suite.Options, files []string) error {
	results := suite.Run(ctx, files, opts)
	var err error
	if f.output == "text" {
		_, err = io.WriteString(s.out, results.Text(f.verbose, isTerminal(s.out) && os.Getenv("NO_COLOR") == ""))
	} else {
		err = results.Write(s.out, f.output, version())
	}
	if err != nil {
		return &codedError{exitUsage, err}
	}
	printSuiteErrors(s.err, results.Errs)
	if err := f.report(s, results); err != nil {
		return &codedError{exitUsage, err}
	}
	if f.update && len(results.Errs) == 0 {
		return updateTests(s, results)
	}
	return testOutcome(results)
}

func (f *testFlags) covers() bool { return f.coverage || f.html != "" || f.lcov != "" }

// report writes the coverage of the policies that ran.
func (f *testFlags) report(s streams, results *suite.Results) error {
	if !f.covers() {
		return nil
	}
	var r coverage.Report
	for _, l := range results.Loaded {
		r.Add(l.Policies, l.Documents, l.Counter)
	}
	if f.coverage {
		if _, err := io.WriteString(s.err, report.Printable(r.Text())); err != nil {
			return err
		}
	}
	if f.lcov != "" {
		if err := os.WriteFile(f.lcov, []byte(r.LCOV()), 0o644); err != nil {
			return fmt.Errorf("--coverage-lcov: %w", err)
		}
	}
	if f.html != "" {
		page, err := r.HTML(os.ReadFile)
		if err == nil {
			err = os.WriteFile(f.html, []byte(page), 0o644)
		}
		if err != nil {
			return fmt.Errorf("--coverage-html: %w", err)
		}
	}
	return nil
}

// updateTests writes the actual results into the cases that failed, or nothing after an error.
func updateTests(s streams, results *suite.Results) error {
	files, errs := results.Update()
	if len(errs) > 0 {
		printErrors(s.err, errs)
		fmt.Fprintln(s.err, "mapd: test: nothing was written")
		return &codedError{code: exitDenied}
	}
	if err := suite.WriteFiles(files); err != nil {
		return &codedError{exitUsage, err}
	}
	for _, file := range files {
		fmt.Fprintf(s.err, "%s: wrote what came out of %s\n", report.Line(file.File), report.Line(strings.Join(file.Cases, ", ")))
	}
	if results.Count(suite.Broken) > 0 {
		return &codedError{code: exitDenied}
	}
	return nil
}

// watchTests runs the suites, and again after each change, until ctx ends.
func watchTests(ctx context.Context, s streams, f *testFlags, opts suite.Options, paths []string) error {
	files, err := suite.Find(paths)
	if err != nil {
		return usagef("test: %w", err)
	}
	watcher := manifest.NewWatcher(suite.Watched(paths, files), true)
	var failed error
	again := func() {
		files, err := suite.Find(paths)
		if err != nil {
			fmt.Fprintln(s.err, "mapd: test:", report.Line(err.Error()))
			return
		}
		err = testOnce(ctx, s, f, opts, files)
		var coded *codedError
		if errors.As(err, &coded) && coded.err != nil {
			failed = cmp.Or(failed, err) // standard output cannot be written to
		}
		fmt.Fprintln(s.err, "mapd: test: waiting for changes")
	}
	again()
	if failed == nil {
		watcher.Run(ctx, again)
	}
	return failed
}

// printSuiteErrors prints the errors of suites, and each fault of their policies.
func printSuiteErrors(w io.Writer, errs []error) {
	for _, err := range errs {
		var refused *mapd.LoadError
		if errors.As(err, &refused) {
			printErrors(w, refused.Errs)
		} else {
			printErrors(w, []error{err})
		}
	}
}

// testOutcome returns the error with the exit code for the results.
func testOutcome(r *suite.Results) error {
	switch {
	case r.Unread:
		return &codedError{code: exitUsage}
	case r.Uncompiled:
		return &codedError{code: exitPolicy}
	case r.Count(suite.Failed)+r.Count(suite.Broken) > 0:
		return &codedError{code: exitDenied}
	case len(r.Outcomes) == 0 && len(r.Empty) > 0:
		return usagef("test: there is no case")
	case len(r.Outcomes) == 0:
		return usagef("test: there is no case, or none that --run matches")
	}
	return nil
}
