package suite

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/mapd-project/mapd/internal/atomicfile"
	"github.com/mapd-project/mapd/internal/author/suite/cases"
	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/mapd"
	"github.com/mapd-project/mapd/pkg/tree"
)

// Updated is a file in which the expectations were replaced by the results.
type Updated struct {
	File  string
	Text  []byte
	Cases []string // whose expectation changed
}

// Update returns the files that change if the results of failed cases become the expectations,
// and errors for cases where that is impossible. It writes nothing. An expectation keeps its form
// if possible: fields stay fields, a patch a patch. A case without an expectation gets the
// changed fields.
func (r *Results) Update() (files []Updated, errs []error) {
	byFile := map[string]*Updated{}
	var order []string
	change := func(file, name string) {
		if byFile[file] == nil {
			byFile[file] = &Updated{File: file}
			order = append(order, file)
		}
		byFile[file].Cases = append(byFile[file].Cases, name)
	}
	// What becomes of objects in other files, and of suites.
	others, suites := map[string]map[string]edited{}, map[*Suite]map[string]any{}
	for _, o := range r.Outcomes {
		if o.Status != Failed || o.result == nil {
			continue
		}
		u := o.unit
		if u.want != nil && u.want.Object() != nil && u.spec.inFile() && !o.result.Denied() && (u.claim == nil || u.claim.meets(o.result)) {
			file := u.suite.near(u.spec.wantFile())
			if others[file] == nil {
				others[file] = map[string]edited{}
			}
			after := o.result.Object()
			if before, ok := others[file][u.want.Where()]; ok && !tree.Equal(before.after, after) {
				errs = append(errs, fmt.Errorf("%s: %s: another case expects the same object of %s, and its result differs", o.where(), o.Name, file))
				continue
			}
			others[file][u.want.Where()] = edited{u.want, after}
			change(file, o.Name)
			continue
		}
		switch {
		case u.claim != nil:
			errs = append(errs, fmt.Errorf("%s: %s: the case is one of Kyverno's; change its result by hand", o.where(), o.Name))
			continue
		case u.row >= 0:
			errs = append(errs, fmt.Errorf("%s: %s: the case is a row of a table; change the row or the case by hand", o.where(), o.Name))
			continue
		case u.many:
			errs = append(errs, fmt.Errorf("%s: %s: the case has several objects; expect objects, a file with what becomes of them", o.where(), o.Name))
			continue
		}
		if suites[u.suite] == nil {
			suites[u.suite] = clone(u.suite.doc.Object().Object)
		}
		c := suites[u.suite]["cases"].([]any)[indexOf(u.path)].(map[string]any)
		c["expect"] = cases.From(o.result, u.spec.Expect)
		change(u.suite.File, o.Name)
	}
	for _, file := range order {
		var edits []mapd.Edit
		for _, where := range slices.Sorted(maps.Keys(others[file])) {
			e := others[file][where]
			edits = append(edits, e.document.Edit(e.after))
		}
		for s, after := range suites {
			if s.File == file {
				edits = append(edits, s.doc.Edit(after))
			}
		}
		text, err := manifest.ReadFile(file, manifest.MaxFile)
		if err == nil {
			if text, err = mapd.Splice(text, edits); err != nil {
				err = fmt.Errorf("%s: %w", file, err)
			}
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		byFile[file].Text = text
		files = append(files, *byFile[file])
	}
	return files, errs
}

// edited is a document and what its object becomes.
type edited struct {
	document *mapd.Document
	after    map[string]any
}

// inFile reports whether the expected object is in a file of its own.
func (c *testCase) inFile() bool { return c.wantFile() != "" }

func (c *testCase) wantFile() string {
	if c.Expect == nil {
		return ""
	}
	if name, ok := c.Expect.Object.(string); ok {
		return name
	}
	return c.Expect.Objects
}

// indexOf returns the number in "cases[3]".
func indexOf(path string) (i int) {
	_, _ = fmt.Sscanf(path, "cases[%d]", &i) // the path was made so
	return i
}

func clone(m map[string]any) map[string]any {
	out := maps.Clone(m)
	if list, ok := out["cases"].([]any); ok {
		list = slices.Clone(list)
		for i := range list {
			if c, ok := list[i].(map[string]any); ok {
				list[i] = maps.Clone(c)
			}
		}
		out["cases"] = list
	}
	return out
}

// WriteFiles writes all new contents to temporary files first, and then renames each, so that an
// error leaves no file incomplete.
func WriteFiles(files []Updated) (err error) {
	var made []*atomicfile.Pending
	defer func() {
		for _, p := range made {
			err = errors.Join(err, p.Discard())
		}
	}()
	for _, f := range files {
		// A link stays a link.
		file, err := manifest.Target(f.File, nil)
		if err != nil {
			return err
		}
		mode := os.FileMode(0o644)
		if info, err := os.Stat(file); err == nil {
			if mode = info.Mode().Perm(); mode&0o222 == 0 {
				return fmt.Errorf("%s is read-only", file) // a rename would succeed even so
			}
		}
		p, err := atomicfile.Create(file, mode)
		if err != nil {
			return err
		}
		made = append(made, p)
		if _, err := p.Write(f.Text); err != nil {
			return err
		}
	}
	for _, p := range made {
		if err := p.Commit(); err != nil {
			return err
		}
	}
	return nil
}
