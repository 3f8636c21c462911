package migrate

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/gatekeeper/translate"
	"github.com/mapd-project/mapd/internal/output/page"
)

const title = "From Gatekeeper's mutators to policies"

// WriteMarkdown writes the report as Markdown.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n%s.\n\n%s\n\n| Mutator | Verdict | File | Notes |\n| --- | --- | --- | --- |\n", title, r.Totals(), page.Cell(r.origin()))
	for _, e := range r.decisions() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", page.Cell(e.Mutator), e.Verdict, page.Cell(e.File), e.lines(page.Cell, markdownLink))
	}
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "\n%s\n", page.Cell(n))
	}
	if r.Verification != nil {
		r.Verification.markdown(&b)
	}
	_, err := b.WriteTo(w)
	return err
}

func (v *Verification) markdown(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n## Both sides on the same objects\n\n%s.\n\n| What | Result |\n| --- | --- |\n", v.Sources())
	for _, c := range v.Comparisons {
		fmt.Fprintf(b, "| %s | %s |\n", page.Cell(c.Name), page.Cell(Result(c)))
	}
	for _, c := range v.Comparisons {
		if c.First != nil {
			fmt.Fprintf(b, "\n### %s\n\n%s.\n\n%s\n", page.Cell(c.Name), page.Cell(Result(c)), page.Fence("", Show(c.First)))
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

func markdownLink(trap string) string { return "[" + trap + "](" + traps + ")" }
func pageLink(trap string) string     { return `<a href="` + traps + `">` + trap + "</a>" }

// lines joins the notes, each escaped and with a link to its trap, into one cell.
func (e Entry) lines(escape, link func(string) string) string {
	lines := make([]string, len(e.Notes))
	for i, n := range e.Notes {
		lines[i] = escape(n.Text)
		if n.Trap != "" {
			lines[i] = link(n.Trap) + ": " + lines[i]
		}
	}
	return strings.Join(lines, "<br>")
}

// WriteHTML writes the report as one page that loads nothing else.
func (r *Report) WriteHTML(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s<h1>%s</h1>\n<p>%s.</p>\n<p>%s</p>\n", page.Head(title), title, page.Text(r.Totals()), page.Text(r.origin()))
	b.WriteString("<table>\n<thead><tr><th>Mutator</th><th>Verdict</th><th>File</th><th>Notes</th></tr></thead>\n<tbody>\n")
	for _, e := range r.decisions() {
		verdict := page.Text(string(e.Verdict))
		fmt.Fprintf(&b, "<tr><td>%s</td><td class=\"%s\">%s</td><td>%s</td><td>%s</td></tr>\n",
			page.Text(e.Mutator), verdict, verdict, page.Text(e.File), e.lines(page.Text, pageLink))
	}
	b.WriteString("</tbody>\n</table>\n")
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "<p>%s</p>\n", page.Text(n))
	}
	if r.Verification != nil {
		r.Verification.html(&b)
	}
	if len(r.Files) > 0 {
		b.WriteString("<h2>Policies</h2>\n")
	}
	for _, f := range r.Files {
		fmt.Fprintf(&b, "<details><summary>%s</summary>\n<pre>%s</pre>\n</details>\n", page.Text(f.Name), page.Text(string(f.Data)))
	}
	b.WriteString("</body>\n</html>\n")
	_, err := b.WriteTo(w)
	return err
}

func (v *Verification) html(b *bytes.Buffer) {
	fmt.Fprintf(b, "<h2>Both sides on the same objects</h2>\n<p>%s.</p>\n", page.Text(v.Sources()))
	b.WriteString("<table>\n<thead><tr><th>What</th><th>Result</th></tr></thead>\n<tbody>\n")
	for _, c := range v.Comparisons {
		fmt.Fprintf(b, "<tr><td>%s</td><td>%s</td></tr>\n", page.Text(c.Name), page.Text(Result(c)))
	}
	b.WriteString("</tbody>\n</table>\n")
	for _, c := range v.Comparisons {
		if c.First != nil {
			fmt.Fprintf(b, "<h3>%s</h3>\n<p>%s.</p>\n<pre>%s</pre>\n", page.Text(c.Name), page.Text(Result(c)), page.Text(Show(c.First)))
		}
	}
}
