package lint

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/manifest"
	"github.com/mapd-project/mapd/pkg/api"
)

// fixGuard puts an expression behind a guard; what does not pass it is left as it is.
func fixGuard(e *expression, guard string) func(map[string]any) bool {
	if guard == "" || e.part == api.Variables {
		return nil
	}
	return fixText(e, func(text string) string {
		text = strings.TrimSpace(text)
		switch {
		case e.part == api.MatchConditions:
			return guard + " && (" + text + ")"
		case e.patch:
			return guard + " ?\n" + text + "\n: []"
		}
		return guard + " ?\n" + text + "\n: Object{}"
	})
}

// fixText changes the text of an expression.
func fixText(e *expression, change func(string) string) func(map[string]any) bool {
	return func(object map[string]any) bool {
		return editSpec(object, string(e.part), e.index, func(list []any) []any {
			entry, _ := list[e.index].(map[string]any)
			list, entry = slices.Clone(list), maps.Clone(entry)
			list[e.index] = entry
			if e.part != api.Mutations {
				entry["expression"] = change(e.text)
				return list
			}
			member := "applyConfiguration"
			if e.patch {
				member = "jsonPatch"
			}
			patch, _ := entry[member].(map[string]any)
			patch = maps.Clone(patch)
			patch["expression"] = change(e.text)
			entry[member] = patch
			return list
		})
	}
}

// editSpec changes a list of the spec that has an element at index. The object is
// a copy down to the spec.
func editSpec(object map[string]any, part string, index int, change func([]any) []any) bool {
	spec, _ := object["spec"].(map[string]any)
	list, _ := spec[part].([]any)
	if index >= len(list) {
		return false
	}
	spec = maps.Clone(spec)
	object["spec"] = spec
	if list = change(list); len(list) == 0 {
		delete(spec, part)
	} else {
		spec[part] = list
	}
	return true
}

// maxFixes bounds how many fixes one document gets.
const maxFixes = 50

// Fixed is a file with what Fix has made of it.
type Fixed struct {
	Source
	// Mended are the findings that are gone.
	Mended []Finding
}

// Fix mends what is mechanical, and returns the files that differ then. Each fix is one
// that leaves a policy which compiles, and that takes its finding away without a new one
// of that rule; others are not made. Comments stay. A file whose documents are not the
// whole text, such as one with a List, is left alone.
func Fix(ctx context.Context, sources []Source, opts Options) ([]Fixed, error) {
	return FixSome(ctx, sources, opts, nil)
}

// FixSome is Fix of the findings that which accepts, and of those that become like them. Nil
// accepts all.
func FixSome(ctx context.Context, sources []Source, opts Options, which func(*Finding) bool) ([]Fixed, error) {
	before, err := Run(ctx, sources, opts)
	if err != nil {
		return nil, err
	}
	m := mender{ctx: ctx, opts: opts, which: which, files: slices.Clone(sources), before: before, mended: make([][]Finding, len(sources)), failed: map[fixID]bool{}, fixes: map[docID]int{}}
	for {
		batch := m.next()
		if len(batch) == 0 {
			break
		}
		if err := m.try(batch); err != nil {
			return nil, err
		}
	}
	var out []Fixed
	for i, f := range m.files {
		if !bytes.Equal(f.Data, sources[i].Data) {
			slices.SortStableFunc(m.mended[i], func(a, b Finding) int { return a.Document - b.Document })
			out = append(out, Fixed{f, m.mended[i]})
		}
	}
	return out, nil
}

// mender is Fix at work.
type mender struct {
	ctx    context.Context
	opts   Options
	which  func(*Finding) bool
	files  []Source
	before *Result // of files
	mended [][]Finding
	failed map[fixID]bool
	fixes  map[docID]int
}

// docID is a document, ruleID what a rule finds in it, and fixID one such finding.
type (
	docID struct {
		file     string
		document int
	}
	ruleID struct {
		docID
		rule string
	}
	fixID struct {
		ruleID
		field, message string
	}
)

func (f *Finding) docID() docID   { return docID{f.File, f.Document} }
func (f *Finding) ruleID() ruleID { return ruleID{f.docID(), f.Rule} }
func (f *Finding) fixID() fixID   { return fixID{f.ruleID(), f.Field, f.Message} }

// next returns the first fix of each document that was not tried. Other findings of the
// document stand in the text as it was.
func (m *mender) next() (batch []Finding) {
	taken := map[docID]bool{}
	for _, f := range m.before.Findings {
		if doc := f.docID(); f.fix != nil && (m.which == nil || m.which(&f)) && !taken[doc] && !m.failed[f.fixID()] && m.fixes[doc] < maxFixes {
			taken[doc] = true
			batch = append(batch, f)
		}
	}
	return batch
}

// try makes fixes of different documents. If that does not help, it makes each half of them.
func (m *mender) try(batch []Finding) error {
	files := slices.Clone(m.files)
	made := true
	for i := range batch {
		made = made && edit(files, &batch[i])
	}
	if made {
		after, err := Run(m.ctx, files, m.opts)
		if err != nil {
			return err
		}
		if helps(batch, m.before, after) {
			m.files, m.before = files, after
			for _, f := range batch {
				at := fileOf(files, &f)
				m.mended[at] = append(m.mended[at], f)
				m.fixes[f.docID()]++
			}
			return nil
		}
	}
	if len(batch) == 1 {
		m.failed[batch[0].fixID()] = true
		return nil
	}
	half := len(batch) / 2
	if err := m.try(batch[:half]); err != nil {
		return err
	}
	return m.try(batch[half:])
}

// helps says that each fix took a finding of its rule away, and that there is no new error.
func helps(batch []Finding, before, after *Result) bool {
	count := func(r *Result) (errors map[docID]int, found map[ruleID]int) {
		errors, found = map[docID]int{}, map[ruleID]int{}
		for _, f := range r.Findings {
			found[f.ruleID()]++
			if f.Severity == Error {
				errors[f.docID()]++
			}
		}
		return errors, found
	}
	had, old := count(before)
	has, now := count(after)
	for doc, n := range has {
		if n > had[doc] {
			return false
		}
	}
	return !slices.ContainsFunc(batch, func(f Finding) bool { return now[f.ruleID()] >= old[f.ruleID()] })
}

func fileOf(files []Source, f *Finding) int {
	return slices.IndexFunc(files, func(s Source) bool { return s.Name == f.File })
}

// edit makes one fix in its file, and returns false if it cannot be made.
func edit(files []Source, f *Finding) bool {
	at := fileOf(files, f)
	object := maps.Clone(f.doc.Object.Object)
	if at < 0 || !f.fix(object) {
		return false
	}
	next := replace(files[at], f.doc, manifest.Rewrite(f.doc, object))
	if next == nil {
		return false
	}
	files[at].Data = next
	return true
}

// replace puts the text of a document in the place of what it was, nil if its text
// is not to be found once in the file.
func replace(file Source, d *manifest.Document, text []byte) []byte {
	if d.JSON || len(d.Raw) == 0 || bytes.Count(file.Data, d.Raw) != 1 {
		return nil
	}
	if bytes.HasSuffix(d.Raw, []byte("\n")) && !bytes.HasSuffix(text, []byte("\n")) {
		text = append(bytes.Clone(text), '\n')
	}
	return bytes.Replace(bytes.Clone(file.Data), d.Raw, text, 1)
}
