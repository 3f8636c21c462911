package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mapd-project/mapd/internal/manifest"
	"github.com/mapd-project/mapd/internal/report"
	"github.com/mapd-project/mapd/internal/snapshot"
	"github.com/mapd-project/mapd/pkg/cel"
)

// loaded is what the -p files come to.
type loaded struct {
	*snapshot.Snapshot
	documents      int
	read, compiled time.Duration // how long it took
}

// load reads the policies' files. Errors that users can correct are all
// returned, each of them a *manifest.PositionError where it has a position;
// code is the exit code that they are worth.
func load(paths []string, recursive bool, stdin io.Reader, opts snapshot.Options) (l *loaded, errs []error, code int) {
	start := time.Now()
	files, err := manifest.Files(paths, recursive)
	if err != nil {
		return nil, []error{err}, exitUsage
	}
	files = once(files)
	docs, errs := manifest.ReadAll(files, stdin, snapshot.Pack)
	docs = slices.DeleteFunc(docs, func(d *manifest.Document) bool { return d.Object == nil })
	if len(errs) > 0 {
		return nil, errs, exitUsage
	}
	read := time.Now()
	s, errs := snapshot.Build(docs, opts)
	if len(errs) > 0 {
		return nil, errs, exitPolicy
	}
	return &loaded{s, len(docs), read.Sub(start), time.Since(read)}, nil, exitOK
}

// once drops the files that stand there already: a file that is named beside
// its directory is no second policy.
func once(files []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(files, func(f string) bool {
		clean := filepath.Clean(f)
		again := seen[clean]
		seen[clean] = true
		return again
	})
}

// environment is the expression language of --kubernetes.
func environment(version string) (*cel.Env, error) {
	env, err := cel.NewEnv(cel.Options{Version: version})
	if err != nil {
		return nil, usagef("--kubernetes: %w", err)
	}
	return env, nil
}

// render is an error on one line, with the line it is about below it where that is
// known; other errors say whose they are.
func render(err error) string {
	var pe *manifest.PositionError
	if !errors.As(err, &pe) {
		return "mapd: " + report.Line(err.Error())
	}
	source := strings.TrimPrefix(pe.Render(), pe.Error())
	return report.Line(pe.Error()) + report.Printable(source)
}

func printErrors(w io.Writer, errs []error) {
	for _, err := range errs {
		fmt.Fprintln(w, render(err))
	}
}
