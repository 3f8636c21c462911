package main

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/cel"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// readFiles reads files whole.
func readFiles(paths []string, recursive bool, stdin io.Reader) (texts []mapd.File, skipped manifest.Skipped, err error) {
	files, skipped, err := manifest.Files(paths, recursive)
	if err != nil {
		return nil, nil, err
	}
	for _, in := range manifest.Inputs(once(files), stdin) {
		text, err := readInput(in)
		if err != nil {
			return nil, nil, err
		}
		texts = append(texts, text)
	}
	return texts, skipped, nil
}

// readInput reads an input whole.
func readInput(in manifest.Input) (mapd.File, error) { return readSome(in, math.MaxInt) }

// readSome reads no more of an input than a number of bytes.
func readSome(in manifest.Input, most int) (mapd.File, error) {
	r, err := in.Open()
	if err != nil {
		return mapd.File{}, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, int64(most)))
	if err != nil {
		return mapd.File{}, fmt.Errorf("%s: %w", in.Name, err)
	}
	return mapd.File{Name: in.Name, Data: data}, nil
}

// readDocuments yields the documents of inputs one by one.
func readDocuments(inputs []manifest.Input) iter.Seq2[*mapd.Document, error] {
	return func(yield func(*mapd.Document, error) bool) {
		for _, in := range inputs {
			if !eachDocument(in, yield) {
				return
			}
		}
	}
}

func eachDocument(in manifest.Input, yield func(*mapd.Document, error) bool) bool {
	r, err := in.Open()
	if err != nil {
		return yield(nil, &mapd.ReadError{Err: err})
	}
	defer r.Close()
	for d, err := range mapd.Read(in.Name, r) {
		if !yield(d, err) {
			return false
		}
	}
	return true
}

// once removes repeated files, such as a file that is named beside its directory.
func once(files []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(files, func(f string) bool {
		clean := filepath.Clean(f)
		again := seen[clean]
		seen[clean] = true
		return again
	})
}

// environment returns the expression language of --kubernetes.
func environment(version string) (*cel.Env, error) {
	env, err := cel.NewEnv(cel.Options{Version: version})
	if err != nil {
		return nil, usagef("--kubernetes: %w", err)
	}
	return env, nil
}

// render returns an error on one line, followed by the line of the file if that is known.
// Errors without a position begin with "mapd: ".
func render(err error) string {
	var at interface {
		error
		Render() string
	}
	if !errors.As(err, &at) {
		return "mapd: " + report.Line(err.Error())
	}
	source := strings.TrimPrefix(at.Render(), at.Error())
	return report.Line(at.Error()) + report.Printable(source)
}

func printErrors(w io.Writer, errs []error) {
	for _, err := range errs {
		fmt.Fprintln(w, render(err))
	}
}

// noArguments returns an error for arguments that names the flags that the user probably meant.
func noArguments(flags string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usagef("unexpected argument %q; files are given with %s, one each", args[0], flags)
		}
		return nil
	}
}

// ignoredText returns a text about the documents, by kind, and the files of directories that
// are not used. expands says that --expand is set.
func ignoredText(documents map[string]int, files manifest.Skipped, expands bool) string {
	counts := maps.Clone(documents)
	if counts == nil {
		counts = map[string]int{}
	}
	for what, n := range files {
		counts[what] += n
	}
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		text := fmt.Sprintf("%d %s", counts[what], what)
		switch {
		case what == manifest.Kustomization:
			text += " (-k builds it)"
		case !strings.HasPrefix(what, "ValidatingAdmissionPolicy"):
		case expands:
			continue
		case what == "ValidatingAdmissionPolicy":
			text += " (mapd expand runs them)"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// total returns how many files were skipped.
func total(skipped manifest.Skipped) (n int) {
	for _, c := range skipped {
		n += c
	}
	return n
}

func counted(n int, one, other string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, other)
}
