//go:build !server

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mapd-project/mapd/internal/author/format"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/output/report"
)

type fmtFlags struct {
	recursive, check, quiet bool
}

const fmtLong = `Lay out the expressions of policies as "mapd migrate" writes them: in lines of at most 100
columns where that is possible, and as blocks where YAML would need quotes.

Files are changed in place, each whole or not at all. Everything but the expressions stays
as it is, byte by byte, and comments stay, those in expressions too. Each result is parsed
again: it has the same syntax tree. Standard input (-) is printed.

These are left alone: expressions in JSON, between YAML's brackets, with an anchor or with a
tag, and all texts but the expressions of MutatingAdmissionPolicies and
ValidatingAdmissionPolicies. Kyverno's MutatingPolicies are left alone as well, because
Kyverno rewrites the text of their expressions for controllers.

Exit codes:
  0  everything is formatted
  1  with --check: a file is not
  2  wrong usage, or a file that cannot be read or written
  3  an expression cannot be parsed; its file is left as it is`

func newFmt(s streams) *cobra.Command {
	var f fmtFlags
	cmd := &cobra.Command{
		Use:   "fmt PATH...",
		Short: "Format the expressions of policies",
		Long:  fmtLong,
		Example: `  mapd fmt -R policies/
  mapd fmt --check -R policies/`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), s, args)
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	recursiveVar(fl, &f.recursive)
	fl.BoolVar(&f.check, "check", false, "write nothing, and list the files that are not formatted")
	fl.BoolVarP(&f.quiet, "quiet", "q", false, "print no names of files")
	return cmd
}

func (f *fmtFlags) run(ctx context.Context, s streams, paths []string) error {
	if len(paths) == 0 {
		return usagef("fmt: no files; name files or directories")
	}
	hintKeyboard(s, paths...)
	files, _, err := readFiles(paths, f.recursive, s.in)
	if err != nil {
		return &codedError{exitUsage, err}
	}
	code := exitOK
	for _, file := range files {
		out, errs := format.Source(ctx, file.Name, file.Data)
		if len(errs) > 0 {
			printErrors(s.err, errs)
			code = max(code, fmtCode(errs))
			continue
		}
		same := bytes.Equal(out, file.Data)
		switch stdin := file.Name == "<stdin>" && slices.Contains(paths, manifest.Stdin); {
		case stdin && !f.check:
			_, err = s.out.Write(out)
		case same:
			continue
		case f.check:
			code = max(code, exitDenied)
		default:
			if err := overwrite(file.Name, paths, out); err != nil {
				printErrors(s.err, []error{err})
				code = max(code, exitUsage)
				continue
			}
		}
		if err != nil {
			return &codedError{exitUsage, err}
		}
		if !f.quiet && !same && (f.check || file.Name != "<stdin>") {
			fmt.Fprintln(s.out, report.Line(file.Name))
		}
	}
	if code != exitOK {
		return &codedError{code: code}
	}
	return nil
}

// fmtCode returns the exit code for the errors of a file.
func fmtCode(errs []error) int {
	for _, err := range errs {
		if e := (*format.Error)(nil); !errors.As(err, &e) {
			return exitUsage
		}
	}
	return exitPolicy
}
