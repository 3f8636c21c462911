//go:build !server

package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mapd-project/mapd/internal/author/fixproof"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/lint"
	"github.com/mapd-project/mapd/internal/output/annotate"
	"github.com/mapd-project/mapd/internal/output/report"
)

type lintFlags struct {
	recursive  bool
	kustomize  []string
	output     string
	kubernetes string
	failOn     string
	rules      []string
	list       bool
	fix        bool
	quiet      bool
}

const lintLong = `Find mistakes in policies.

Pass bindings, CustomResourceDefinitions, Namespaces and parameters among the files: rules
check policies against them. What is not among the files is not reported as missing, but
for the binding of a policy and the policy of a binding. No policy is run.
Of Gatekeeper's mutators only the names of their fields are looked at (unknown-field), of
Kyverno's policies only what mapd makes of their mutate rules (kyverno).

A comment "# mapd:ignore RULE REASON" (in an expression "// mapd:ignore RULE REASON")
suppresses the findings of a rule in its line, or in the next one and all that is indented
deeper than that; on top of a document, in all of it. One that has no reason or
suppresses nothing is a finding.

With --fix, findings that end with "fixable" are mended in the files, each only if
the policy compiles after it. Comments stay.

Output formats:
  text    a line for each finding, with the line of the file (default)
  json    the findings as a list
  sarif   SARIF 2.1.0, for code scanning
  github  commands of a GitHub workflow, which show as annotations

Exit codes:
  0  no finding is as bad as --fail-on
  1  one is
  2  wrong usage, or input that cannot be read, whatever --fail-on is`

func newLint(s streams) *cobra.Command {
	var f lintFlags
	cmd := &cobra.Command{
		Use:   "lint PATH...",
		Short: "Look for mistakes in policies",
		Long:  lintLong,
		Example: `  mapd lint -R policies/
  mapd lint --kubernetes 1.34-1.37 -o github policies/`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), s, args)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	fl.StringArrayVarP(&f.kustomize, "kustomize", "k", nil, "also what the kustomization in this directory makes; nothing is fetched; repeatable")
	recursiveVar(fl, &f.recursive)
	choiceVarP(fl, &f.output, "output", "o", "text", "", "text", "json", "sarif", "github")
	fl.StringVar(&f.kubernetes, "kubernetes", "", "the minor versions of the servers that policies are for, such as 1.36 or 1.32-1.37 (default 1.37)")
	choiceVar(fl, &f.failOn, "fail-on", "error", ": the least severity that makes the exit code 1", "error", "warning", "info", "none")
	fl.StringSliceVar(&f.rules, "rule", nil, "use these rules only, separated by commas; repeatable")
	fl.BoolVar(&f.list, "rules", false, "list the rules instead")
	fl.BoolVar(&f.fix, "fix", false, "mend what can be mended in the files")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing; the exit code tells")
	return cmd
}

func (f *lintFlags) run(ctx context.Context, s streams, paths []string) error {
	if f.list {
		for _, r := range lint.Rules() {
			fmt.Fprintf(s.out, "%-20s %-8s %s\n", r.Name, r.Severity, strings.ReplaceAll(r.Summary, "`", ""))
		}
		return nil
	}
	opts, err := f.options()
	switch {
	case err != nil:
		return err
	case len(paths)+len(f.kustomize) == 0:
		return usagef("lint: no files; name files or directories")
	case f.fix && len(f.kustomize) > 0:
		return usagef("lint: --fix changes files; what a kustomization makes is in none")
	case f.fix && slices.Contains(paths, manifest.Stdin):
		return usagef("lint: --fix changes files; standard input is none")
	}
	hintKeyboard(s, paths...)
	files, skipped, err := readFiles(paths, f.recursive, s.in)
	if err != nil {
		return &codedError{exitUsage, err}
	}
	made, err := kustomized(f.kustomize)
	if err != nil {
		return &codedError{exitUsage, err}
	}
	for _, in := range made {
		text, err := readInput(in)
		if err != nil {
			return &codedError{exitUsage, err}
		}
		files = append(files, text)
	}
	var sources []lint.Source
	for _, file := range files {
		if !slices.ContainsFunc(sources, func(s lint.Source) bool { return filepath.Clean(s.Name) == filepath.Clean(file.Name) }) {
			sources = append(sources, lint.Source{Name: file.Name, Data: file.Data})
		}
	}
	if f.fix {
		if err := f.mend(ctx, s, paths, sources, opts); err != nil {
			return err
		}
	}
	r, err := lint.Run(ctx, sources, opts)
	if err != nil {
		return usagef("lint: %w", err)
	}
	if r.Policies+r.Bindings+r.Mutators+r.Kyverno == 0 && len(r.Findings) == 0 {
		return usagef("lint: no policies in %s%s", strings.Join(paths, ", "), onlySuffix(ignoredText(nil, skipped, true)))
	}
	if !f.quiet {
		if err := f.print(s, r, ignoredText(nil, skipped, true)); err != nil {
			return &codedError{exitUsage, err}
		}
	}
	if r.Unread {
		return &codedError{code: exitUsage} // the findings say it
	}
	if f.failOn != "none" && slices.ContainsFunc(r.Findings, func(x lint.Finding) bool { return x.Severity.Reaches(lint.Severity(f.failOn)) }) {
		return &codedError{code: exitDenied}
	}
	return nil
}

// options reads the range of --kubernetes and the names of --rule.
func (f *lintFlags) options() (opts lint.Options, err error) {
	known := lint.Rules()
	for _, name := range f.rules {
		if !slices.ContainsFunc(known, func(r lint.Rule) bool { return r.Name == name }) {
			return opts, usagef("lint: --rule %s: there is no such rule; --rules lists them", name)
		}
	}
	opts = lint.Options{Oldest: lint.CurrentMinor, Newest: lint.CurrentMinor, Only: f.rules, Prove: new(fixproof.Prover).Prove}
	if f.kubernetes == "" {
		return opts, nil
	}
	oldest, newest, isRange := strings.Cut(f.kubernetes, "-")
	if !isRange {
		newest = oldest
	}
	var errs [2]error
	opts.Oldest, errs[0] = minorOf(oldest)
	opts.Newest, errs[1] = minorOf(newest)
	if err := cmp.Or(errs[0], errs[1]); err != nil {
		return opts, usagef("lint: --kubernetes %s: %w", f.kubernetes, err)
	}
	if opts.Oldest > opts.Newest {
		return opts, usagef("lint: --kubernetes %s: the older minor stands first", f.kubernetes)
	}
	return opts, nil
}

func minorOf(version string) (int, error) {
	minor, ok := strings.CutPrefix(strings.TrimPrefix(version, "v"), "1.")
	n, err := strconv.Atoi(minor)
	if !ok || err != nil || n < lint.OldestMinor || n > lint.NewestMinor {
		return 0, fmt.Errorf("want minors from 1.%d to 1.%d, such as 1.36 or 1.34-1.37", lint.OldestMinor, lint.NewestMinor)
	}
	return n, nil
}

// mend writes the output of lint.Fix to the files. Each file is written as a whole or not at
// all.
func (f *lintFlags) mend(ctx context.Context, s streams, paths []string, sources []lint.Source, opts lint.Options) error {
	fixed, err := lint.Fix(ctx, sources, opts)
	if err != nil {
		return usagef("lint: %w", err)
	}
	for _, file := range fixed {
		if err := overwrite(file.Name, paths, file.Data); err != nil {
			return &codedError{exitUsage, err}
		}
		for i := range sources {
			if sources[i].Name == file.Name {
				sources[i].Data = file.Data
			}
		}
		if !f.quiet {
			for _, x := range file.Mended {
				fmt.Fprintf(s.err, "fixed: %s: %s: %s (%s)\n", report.Line(x.File), report.Line(x.Object), report.Line(x.Message), x.Rule)
			}
		}
	}
	return nil
}

// print writes the findings to standard output, and a line about them to standard error.
func (f *lintFlags) print(s streams, r *lint.Result, ignored string) error {
	var b bytes.Buffer
	switch f.output {
	case "text":
		for i := range r.Findings {
			b.WriteString(report.Printable(r.Findings[i].Render()))
			if r.Findings[i].Fixable {
				b.WriteString("\n  fixable: --fix")
			}
			if why := r.Findings[i].NotFixed; why != "" {
				b.WriteString("\n  not fixed by --fix: " + report.Line(why))
			}
			b.WriteByte('\n')
		}
	case "json":
		list := slices.Concat([]lint.Finding{}, r.Findings, r.Suppressed)
		if list == nil {
			list = []lint.Finding{}
		}
		text, err := marshal(list, "  ")
		if err != nil {
			return err
		}
		b.Write(text)
	default:
		var remarks []annotate.Remark
		for _, x := range slices.Concat(r.Findings, r.Suppressed) {
			level := string(x.Severity)
			if x.Severity == lint.Info {
				level = "note"
			}
			remarks = append(remarks, annotate.Remark{Rule: x.Rule, Level: level, File: x.File, Line: x.Line, Column: x.Column, Message: x.Message, Suppressed: x.Reason})
		}
		var err error
		if f.output == "github" {
			err = annotate.GitHub(&b, remarks)
		} else {
			var rules []annotate.Rule
			for _, rule := range lint.Rules() {
				rules = append(rules, annotate.Rule{Name: rule.Name, Summary: rule.Summary})
			}
			err = annotate.SARIF(&b, "mapd", version(), rules, remarks)
		}
		if err != nil {
			return err
		}
	}
	if _, err := s.out.Write(b.Bytes()); err != nil {
		return err
	}
	count := map[lint.Severity]int{}
	for _, x := range r.Findings {
		count[x.Severity]++
	}
	more := ""
	if r.More {
		more = "; there are more"
	}
	if ignored != "" {
		more += "; ignored: " + ignored
	}
	others := ""
	if r.Mutators > 0 {
		others = fmt.Sprintf(", mutators: %d", r.Mutators)
	}
	if r.Kyverno > 0 {
		others += fmt.Sprintf(", policies of Kyverno: %d", r.Kyverno)
	}
	_, err := fmt.Fprintf(s.err, "policies: %d, bindings: %d%s; errors: %d, warnings: %d, info: %d, suppressed: %d%s\n",
		r.Policies, r.Bindings, others, count[lint.Error], count[lint.Warning], count[lint.Info], len(r.Suppressed), more)
	return err
}
