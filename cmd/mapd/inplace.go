//go:build !server

package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/mapd-project/mapd/internal/atomicfile"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/pkg/mapd"
)

// inPlace writes the results of objects into the files that the objects are from. A file is
// replaced as a whole, and only if nothing in it failed or was denied.
type inPlace struct {
	evaluation *evaluation
	edits      []mapd.Edit // of the file that is being read
}

// checkInPlace returns an error for flags and files that cannot be used with --in-place.
func (f *evalFlags) checkInPlace(files []string) ([]string, error) {
	switch {
	case len(f.kustomize) > 0:
		return nil, f.usagef("--in-place with --kustomize: what a kustomization makes is in no file")
	case f.expand:
		return nil, f.usagef("--in-place with --expand: what workloads create is in no file")
	case f.dryRun:
		return nil, f.usagef("--in-place with --dry-run: that only sets request.dryRun; leave --in-place out to write nothing")
	case f.output == "json" || f.output == "review" || f.output == blameFormat:
		return nil, f.usagef("--in-place keeps the form of each file; of the formats only diff, markdown, name and patch go with it")
	}
	seen := map[string]bool{}
	var out []string
	for _, file := range files {
		if file == manifest.Stdin {
			return nil, f.usagef("--in-place changes files; standard input is none")
		}
		real, err := manifest.Target(file, f.files)
		if err != nil {
			return nil, &codedError{exitUsage, err}
		}
		info, err := os.Stat(real)
		if err != nil {
			return nil, &codedError{exitUsage, err}
		}
		if !info.Mode().IsRegular() {
			return nil, f.usagef("--in-place: %s is no plain file", file)
		}
		if real, err = filepath.Abs(real); err != nil {
			return nil, &codedError{exitUsage, err}
		}
		if !seen[real] {
			out = append(out, file)
		}
		seen[real] = true
	}
	return out, nil
}

// take records the result of an object.
func (p *inPlace) take(r *mapd.Result) {
	if edit, ok := r.Edit(); ok {
		p.edits = append(p.edits, edit)
	}
}

// begin is called before a file is read, and end after it.
func (p *inPlace) begin() (end func(name string)) {
	e := p.evaluation
	failed, unreadable, denials := e.failed, e.unreadable, e.given.denied+e.generated.denied
	p.edits = p.edits[:0]
	e.failed, e.unreadable = false, false
	return func(name string) {
		keep := e.failed || e.unreadable || e.given.denied+e.generated.denied > denials
		e.failed, e.unreadable = e.failed || failed, e.unreadable || unreadable
		switch {
		case len(p.edits) == 0:
		case keep:
			e.notes.fail("%s: left as it is\n", report.Line(name))
		default:
			p.write(name)
		}
	}
}

func (p *inPlace) write(name string) {
	text, err := manifest.ReadFile(name, manifest.MaxStream)
	if err == nil {
		text, err = mapd.Splice(text, p.edits)
	}
	if err == nil {
		err = overwrite(name, p.evaluation.flags.files, text)
	}
	if err != nil {
		p.evaluation.failed = true
		p.evaluation.notes.fail("%s: left as it is: %s\n", report.Line(name), report.Line(err.Error()))
		return
	}
	p.evaluation.notes.say("%s: %s written\n", report.Line(name), counted(len(p.edits), "object", "objects"))
}

// overwrite replaces a file and keeps its mode. For a symbolic link it replaces the target, if
// the target is within the paths that the user gave.
func overwrite(name string, paths []string, data []byte) error {
	name, err := manifest.Target(name, paths)
	if err != nil {
		return err
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", name) // a rename would replace it by one
	}
	if info.Mode().Perm()&0o222 == 0 {
		return fmt.Errorf("%s is read-only", name) // a rename would ignore that
	}
	return atomicfile.Write(name, data, info.Mode().Perm())
}
