package lint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/mapd-project/mapd/internal/document/manifest"
	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/cel/syntax"
)

// optionals returns a fix that reads a part as an optional wherever an expression compares it, or
// something below it, with a literal. The result of the comparison stays the same for objects
// that have the part: a missing part differs from every literal, whether the comparison is
// negated or not. It also returns the text of the first changed selection. It returns nil and ""
// if there is no such comparison.
func optionals(e *expression, at path) (fix func(map[string]any) bool, reads string) {
	type edit struct {
		from, to int
		text     string
	}
	var edits []edit
	text := []rune(e.text)
	e.root.Walk(func(n *syntax.Node) bool {
		if n.Kind != syntax.Call || n.Name != "_==_" && n.Name != "_!=_" || len(n.Args) != 2 {
			return true
		}
		for i, a := range n.Args {
			other := n.Args[1-i]
			missing := ""
			switch v := other.Value.(type) {
			case string:
				if v != "" {
					missing = `""`
				}
			case bool:
				if v {
					missing = "false"
				}
			}
			steps, from := selection(a)
			if other.Kind != syntax.Literal || missing == "" || len(steps) < len(at) || steps[:len(at)].key() != at.key() {
				continue
			}
			if to, changed := asOptional(text, from, steps, len(at)-1); to > 0 {
				edits = append(edits, edit{from, to, changed + ".orValue(" + missing + ")"})
			}
		}
		return true
	})
	if len(edits) == 0 {
		return nil, ""
	}
	slices.SortFunc(edits, func(a, b edit) int { return b.from - a.from })
	return fixText(e, func(string) string {
		out := slices.Clone(text)
		for _, x := range edits {
			out = slices.Replace(out, x.from, x.to, []rune(x.text)...)
		}
		return string(out)
	}), edits[len(edits)-1].text
}

// selection returns the steps of a selection that begins with a variable, and the offset of its
// beginning; no steps if n is something else.
func selection(n *syntax.Node) (steps path, from int) {
	for {
		switch {
		case n.Kind == syntax.Ident:
			steps = append(steps, n.Name)
			slices.Reverse(steps)
			return steps, n.Offset
		case n.Kind == syntax.Select && !n.Test:
			steps = append(steps, n.Name)
		case n.Kind == syntax.Call && n.Name == "_[_]" && n.Args[1].Kind == syntax.Literal:
			key, ok := n.Args[1].Value.(string)
			if !ok {
				return nil, 0
			}
			steps = append(steps, key)
		default:
			return nil, 0
		}
		n = n.Args[0]
	}
}

// asOptional returns the text of a selection in which the steps from index first on are optional,
// and the offset at which the selection ends; 0 if the selection is not written in the plain form
// a.b.c.
func asOptional(text []rune, from int, steps path, first int) (end int, changed string) {
	at := from
	take := func(want string) bool {
		if end := at + len([]rune(want)); end <= len(text) && string(text[at:end]) == want {
			at = end
			return true
		}
		return false
	}
	if !take(steps[0]) {
		return 0, ""
	}
	changed = steps[0]
	for i, step := range steps[1:] {
		mark := ""
		if i+1 >= first {
			mark = "?"
		}
		switch {
		case take("." + step):
			changed += "." + mark + step
		case take(`["` + step + `"]`), take("['" + step + "']"):
			changed += "[" + mark + quote(step) + "]"
		default:
			return 0, ""
		}
	}
	return at, changed
}

// fixText returns a fix that changes the text of an expression.
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

// editSpec changes a list of the spec that has an element at index. It modifies object down to
// the spec, so the caller passes a copy.
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

// maxFixes bounds the fixes in one document.
const maxFixes = 50

// Fixed is a file that Fix has changed.
type Fixed struct {
	Source
	// Mended are the findings that the fixes removed.
	Mended []Finding
}

// Fix repairs what can be repaired mechanically, and returns the files that have changed. It
// makes a fix only if the policy compiles afterwards, the finding disappears without a new one of
// the same rule, and Options.Prove accepts the change. Comments stay. Fix does not change files
// whose documents are not the whole text, such as a file with a List.
func Fix(ctx context.Context, sources []Source, opts Options) ([]Fixed, error) {
	return FixSome(ctx, sources, opts, nil)
}

// FixSome is Fix for the findings that which accepts, also for those that only a fix brings about.
// A nil which accepts all findings.
func FixSome(ctx context.Context, sources []Source, opts Options, which func(*Finding) bool) ([]Fixed, error) {
	m := &mender{opts: opts, files: slices.Clone(sources), which: which}
	if err := m.mend(ctx); err != nil {
		return nil, err
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

// mend makes all possible fixes for the findings that which accepts. It stops when ctx is done.
func (m *mender) mend(ctx context.Context) error {
	m.ctx, m.mended, m.failed, m.fixes = ctx, make([][]Finding, len(m.files)), map[fixID]string{}, map[docID]int{}
	var err error
	if m.before, err = m.memory.run(ctx, m.files, m.opts); err != nil {
		return err
	}
	for m.opts.Prove != nil {
		batch := m.next()
		if len(batch) == 0 {
			break
		}
		if err := m.try(batch); err != nil {
			return err
		}
	}
	return nil
}

// verdicts returns, for each finding with a fix that remains, the reason why the fix was not
// made.
func (m *mender) verdicts() map[fixID]string {
	out := maps.Clone(m.failed)
	for _, f := range m.before.Findings {
		if id := f.fixID(); out[id] == "" {
			out[id] = fmt.Sprintf("only %d fixes are made in one document", maxFixes)
		}
	}
	return out
}

// mender is the state of one call of Fix.
type mender struct {
	opts   Options
	which  func(*Finding) bool
	files  []Source
	memory memory // of the last run on files

	ctx    context.Context
	before *Result // of the last run on files
	mended [][]Finding
	failed map[fixID]string // why the fix was not made
	fixes  map[docID]int
}

// docID identifies a document, ruleID the findings of one rule in it, and fixID one of these
// findings.
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

// next returns at most one fix for each document, the first that was not tried. The positions of
// other findings are valid only until the document changes.
func (m *mender) next() (batch []Finding) {
	taken := map[docID]bool{}
	for _, f := range m.before.Findings {
		if doc := f.docID(); f.fix != nil && (m.which == nil || m.which(&f)) && !taken[doc] && m.failed[f.fixID()] == "" && m.fixes[doc] < maxFixes {
			taken[doc] = true
			batch = append(batch, f)
		}
	}
	return batch
}

// try makes fixes in different documents. If they fail together, it tries each half of them.
func (m *mender) try(batch []Finding) error {
	files := slices.Clone(m.files)
	why := ""
	for i := range batch {
		if why == "" {
			why = m.edit(files, &batch[i])
		}
	}
	if err := m.ctx.Err(); err != nil {
		return context.Cause(m.ctx)
	}
	if why == "" {
		memory := m.memory
		after, err := memory.run(m.ctx, files, m.opts)
		if err != nil {
			return err
		}
		if why = harm(batch, m.before, after); why == "" {
			m.files, m.before, m.memory = files, after, memory
			for _, f := range batch {
				at := fileOf(files, &f)
				m.mended[at] = append(m.mended[at], f)
				m.fixes[f.docID()]++
				// Fixes that failed before may be possible in the changed document.
				maps.DeleteFunc(m.failed, func(id fixID, _ string) bool { return id.docID == f.docID() })
			}
			return nil
		}
	}
	if len(batch) == 1 {
		m.failed[batch[0].fixID()] = why
		return nil
	}
	half := len(batch) / 2
	if err := m.try(batch[:half]); err != nil {
		return err
	}
	return m.try(batch[half:])
}

// harm returns the reason why fixes must not be made, or "": each fix has to remove a finding of
// its rule, and no document may have more errors than before.
func harm(batch []Finding, before, after *Result) string {
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
			return "the policy would have another error"
		}
	}
	if slices.ContainsFunc(batch, func(f Finding) bool { return now[f.ruleID()] >= old[f.ruleID()] }) {
		return "the policy would have a finding of this rule in another place"
	}
	return ""
}

func fileOf(files []Source, f *Finding) int {
	return slices.IndexFunc(files, func(s Source) bool { return s.Name == f.File })
}

// edit makes one fix in its file, or returns the reason why it cannot.
func (m *mender) edit(files []Source, f *Finding) (why string) {
	at := fileOf(files, f)
	object := maps.Clone(f.doc.Object.Object)
	if at < 0 || !f.fix(object) {
		return "the document has another form than was read"
	}
	next := replace(files[at], f.doc, manifest.Rewrite(f.doc, object))
	if next == nil {
		return "the text of the document is JSON, part of a List, or twice in the file"
	}
	if err := m.opts.Prove(m.ctx, f.doc.Object.Object, object); err != nil && !(f.evident && errors.Is(err, ErrNotShown)) {
		return err.Error()
	}
	files[at].Data = next
	return ""
}

// replace replaces the text of a document in its file. It returns nil if the text does not occur
// exactly once.
func replace(file Source, d *manifest.Document, text []byte) []byte {
	if d.JSON || len(d.Raw) == 0 || bytes.Count(file.Data, d.Raw) != 1 {
		return nil
	}
	if bytes.HasSuffix(d.Raw, []byte("\n")) && !bytes.HasSuffix(text, []byte("\n")) {
		text = append(bytes.Clone(text), '\n')
	}
	return bytes.Replace(bytes.Clone(file.Data), d.Raw, text, 1)
}
