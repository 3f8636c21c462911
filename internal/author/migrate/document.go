package migrate

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/internal/output/page"
)

const title = "From Gatekeeper's mutators to policies"

// WriteMarkdown writes the report as Markdown.
func (r *Report) WriteMarkdown(w io.Writer) error { return r.write(page.Markdown(title), w) }

// WriteHTML writes the report as one page that loads nothing else.
func (r *Report) WriteHTML(w io.Writer) error { return r.write(page.HTML(title), w) }

func (r *Report) write(p *page.Page, w io.Writer) error {
	p.Paragraph(r.Totals() + ".")
	p.Paragraph(r.origin())
	t := page.Table{Heads: []string{"Mutator", "Verdict", "File", "Notes"}}
	for _, e := range r.decisions() {
		t.RowWith(e.lines(), e.Mutator, string(e.Verdict), e.File)
	}
	p.Table(&t)
	for _, n := range r.Notes {
		p.Paragraph(n)
	}
	if r.Verification != nil {
		r.Verification.write(p)
	}
	if p.IsHTML() && len(r.Files) > 0 {
		p.Heading(2, "Policies")
		for _, f := range r.Files {
			p.Folded(f.Name, "yaml", string(f.Data))
		}
	}
	_, err := p.WriteTo(w)
	return err
}

func (v *Verification) write(p *page.Page) {
	p.Heading(2, "Both sides on the same objects")
	p.Paragraph(v.Sources() + ".")
	t := page.Table{Heads: []string{"What", "Result"}}
	for _, c := range v.Comparisons {
		t.Row(c.Name, Result(c))
	}
	p.Table(&t)
	for _, c := range v.Comparisons {
		if c.First != nil {
			p.Heading(3, c.Name)
			p.Paragraph(Result(c) + ".")
			p.Code("", Show(c.First))
		}
	}
}

// decisions returns the mutators with those first that need a decision: all that are
// not exact.
func (r *Report) decisions() []Entry {
	out := slices.Clone(r.Mutators)
	slices.SortStableFunc(out, func(a, b Entry) int { return cmp.Compare(rank(a.Verdict), rank(b.Verdict)) })
	return out
}

func rank(v translate.Verdict) int { return -slices.Index(verdicts, v) }

// origin says what the report is about, which mapd wrote it, and what follows.
func (r *Report) origin() string {
	verdict := "nothing needs a decision"
	if !r.OK() {
		verdict = "what stands first needs a decision"
	}
	return fmt.Sprintf("Mutators of %s, read by mapd %s; %s.", r.Source, r.Version, verdict)
}

// traps is where the behaviours of Gatekeeper are that notes name.
const traps = "https://github.com/mapd-project/mapd/blob/main/docs/spec/gatekeeper.md#13-traps"

// lines returns the notes, each with a link to its trap. There is at least one line.
func (e Entry) lines() []page.Line {
	lines := make([]page.Line, max(1, len(e.Notes)))
	for i, n := range e.Notes {
		lines[i] = page.Line{Word: n.Trap, Link: traps, Text: n.Text}
	}
	return lines
}
