package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mapd-project/mapd/internal/suite"
	"github.com/mapd-project/mapd/pkg/kubewarden"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// testFlags are the flags of test.
type testFlags struct {
	run      string
	verbose  bool
	count    int
	parallel int
	modules  moduleFlags
}

const testLong = `Run the cases of suites, and show how results differ from what was expected.

A suite is a file mapd-test.yaml beside the policies that it is about. PATH is a
suite, a directory with one, or DIR/... for all suites below a directory; the
default is the current directory. Directories named testdata, vendor or
node_modules, and those that begin with a dot or an underscore, are left out.

docs/authoring.md describes the format; docs/mapd-test.schema.json is its JSON schema,
for editors.

Exit codes:
  0  all cases passed
  1  a case failed
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
			if ctx == nil {
				ctx = context.Background()
			}
			return test(ctx, s, &f, args)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringVar(&f.run, "run", "", "run only the cases whose FILE/NAME the regular expression matches")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "print every case and what its policies did")
	fl.IntVar(&f.count, "count", 1, "run each case so many times; all have to give the same")
	fl.IntVar(&f.parallel, "parallel", 0, "how many cases run at once (default as many as there are cores)")
	f.modules.add(cmd)
	return cmd
}

// goFlags are flags of go test that may have one dash here too.
var goFlags = []string{"-run", "-count", "-parallel"}

// spelled returns the arguments of mapd test with two dashes before the flags that go
// test has.
func spelled(args []string) []string {
	if len(args) == 0 || args[0] != "test" {
		return args
	}
	out := slices.Clone(args)
	for i, arg := range out {
		if arg == "--" {
			break
		}
		if name, _, _ := strings.Cut(arg, "="); slices.Contains(goFlags, name) {
			out[i] = "-" + arg
		}
	}
	return out
}

func (f *testFlags) options(stderr io.Writer) (suite.Options, error) {
	opts := suite.Options{Count: f.count, Parallel: f.parallel, Verbose: f.verbose}
	if f.count < 1 || f.parallel < 0 {
		return opts, usagef("test: --count must be at least 1, and --parallel not negative")
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
		log = guestLog(stderr)
	}
	if _, err := f.modules.loader(log); err != nil {
		return opts, usagef("test: %w", err)
	}
	opts.Guests = func(local map[string]string) (kubewarden.Loader, error) {
		own := f.modules
		for _, module := range slices.Sorted(maps.Keys(local)) {
			own.local = append(slices.Clip(own.local), module+"="+local[module])
		}
		return own.loader(log)
	}
	return opts, nil
}

func test(ctx context.Context, s streams, f *testFlags, paths []string) error {
	opts, err := f.options(s.err)
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		paths = []string{"."}
	}
	files, err := suite.Find(paths)
	if err != nil {
		return usagef("test: %w", err)
	}
	results := suite.Run(ctx, files, opts)
	colour := isTerminal(s.out) && os.Getenv("NO_COLOR") == ""
	if _, err := io.WriteString(s.out, results.Text(f.verbose, colour)); err != nil {
		return &codedError{exitUsage, err}
	}
	printSuiteErrors(s.err, results.Errs)
	return testVerdict(results)
}

// printSuiteErrors prints what is wrong with suites, and each fault of their policies.
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

// testVerdict returns the error whose exit code the results deserve.
func testVerdict(r *suite.Results) error {
	switch {
	case r.Unread:
		return &codedError{code: exitUsage}
	case r.Uncompiled:
		return &codedError{code: exitPolicy}
	case r.Count(suite.Failed)+r.Count(suite.Broken) > 0:
		return &codedError{code: exitDenied}
	case len(r.Outcomes) == 0:
		return usagef("test: no case matches --run")
	}
	return nil
}
