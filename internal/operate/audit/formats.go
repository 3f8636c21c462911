package audit

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/mapd-project/mapd/internal/output/annotate"
	"github.com/mapd-project/mapd/internal/output/page"
	"github.com/mapd-project/mapd/internal/output/report"
	"github.com/mapd-project/mapd/internal/words"
)

// Formats are the formats of Write. For json, lines of Line come before it.
var Formats = []string{"table", "json", "markdown", "html", "sarif"}

// mostFields is how many fields of a policy a report names that a person reads.
const mostFields = 20

// Write writes a report in one of Formats. version is that of mapd.
func (r *Report) Write(w io.Writer, format, version string, colour report.Colour) error {
	var out io.WriterTo
	switch format {
	case "json":
		return report.WriteJSON(w, struct {
			Totals *Totals  `json:"totals"`
			Notes  []string `json:"notes,omitempty"`
		}{&r.Totals, r.Notes}, "")
	case "sarif":
		return annotate.SARIF(w, "mapd audit", version, r.rules(), r.remarks())
	case "markdown", "html":
		p := page.Markdown(title)
		if format == "html" {
			p = page.HTML(title)
		}
		r.write(p, version)
		out = p
	default:
		b := &bytes.Buffer{}
		r.table(b, colour)
		out = b
	}
	_, err := out.WriteTo(w)
	return err
}

// Summary says how many objects there are of what.
func (t *Totals) Summary() string {
	text := fmt.Sprintf("%s evaluated: %d would change, %d would be denied, for %d a policy fails", words.Count(t.Objects, "object", "objects"), t.Changed, t.Denied, t.Failed)
	if t.Unread > 0 {
		text += fmt.Sprintf(", %d could not be evaluated", t.Unread)
	}
	return text
}

// left says how many results are not shown.
func (r *Report) left() string {
	if r.Left == 0 {
		return ""
	}
	return fmt.Sprintf("%s not shown; -o json has all, and --diffs says how many are shown", words.Count(r.Left, "more object", "more objects"))
}

// table is a table of a report with what it is about.
type table struct {
	title string
	page.Table
}

func newTable(title string, heads ...string) table { return table{title, page.Table{Heads: heads}} }

// tables returns the tables of a report that have rows.
func (r *Report) tables() []table {
	policies := newTable("Policies", "POLICY", "BINDING", "MODE", "CHANGED", "FAILED")
	fields := newTable("Fields", "POLICY", "BINDING", "FIELD", "OBJECTS")
	for _, p := range r.Policies {
		name := p.Policy
		if p.Stage != "" {
			name += " (" + p.Stage + ")"
		}
		mode := p.Mode
		if mode == "" {
			mode = "enforce"
		}
		policies.Row(name, p.Binding, mode, fmt.Sprint(p.Changed), fmt.Sprint(p.Failed))
		names := p.sortedFields()
		for i, f := range names {
			if i == mostFields {
				fields.Row(name, p.Binding, fmt.Sprintf("and %d others", len(names)-i), "")
				break
			}
			fields.Row(name, p.Binding, f, fmt.Sprint(p.Fields[f]))
		}
	}
	kinds := newTable("Kinds", "KIND", "RESOURCE", "OBJECTS", "CHANGED", "DENIED", "FAILED")
	for _, k := range r.Kinds {
		if k.Unreadable == "" || k.Objects > 0 {
			kinds.Row(k.Kind, k.Resource, fmt.Sprint(k.Objects), fmt.Sprint(k.Changed), fmt.Sprint(k.Denied), fmt.Sprint(k.Failed))
		}
	}
	return slices.DeleteFunc([]table{kinds, policies, fields}, func(t table) bool { return t.Len() == 0 })
}

// notes are all that is to say besides.
func (r *Report) notes() (out []string) {
	for _, p := range r.Policies {
		if p.Error != "" {
			out = append(out, fmt.Sprintf("%s fails: %s", p.Policy, p.Error))
		}
	}
	if text := r.drift(); text != "" {
		out = append(out, text)
	}
	return append(out, r.Gaps()...)
}

// Gaps say what was not read or counted.
func (r *Report) Gaps() (out []string) {
	for _, k := range r.Kinds {
		if k.Unreadable != "" {
			out = append(out, fmt.Sprintf("not read: %s: %s", k.Resource, k.Unreadable))
		}
	}
	if r.OtherFields > 0 {
		out = append(out, fmt.Sprintf("%d changes are of fields with so many names that they are not counted one by one", r.OtherFields))
	}
	if r.OtherPolicies > 0 {
		out = append(out, fmt.Sprintf("%d results of policies are not counted one by one: there are too many policies", r.OtherPolicies))
	}
	return append(out, r.Notes...)
}

// Incomplete reports whether a kind of objects, or something that policies depend on, could not
// be read.
func (r *Report) Incomplete() bool {
	return r.incomplete || slices.ContainsFunc(r.Kinds, func(k KindTotal) bool { return k.Unreadable != "" })
}

// says returns what a result is besides its changes.
func (r *Result) says() (out []string) {
	switch {
	case r.Error != "":
		out = append(out, "could not be evaluated: "+r.Error)
	case r.Denied != "":
		out = append(out, "would be denied: "+r.Denied)
	case r.DeniedBefore != "":
		out = append(out, "would be denied by the base, and is not: "+r.DeniedBefore)
	}
	for _, a := range r.By {
		text := a.Policy
		if a.Binding != "" {
			text += " › " + a.Binding
		}
		if a.Mode != "" {
			text += " (" + a.Mode + ")"
		}
		if len(a.Fields) > 0 {
			text += ": " + strings.Join(a.Fields, ", ")
		}
		if a.Error != "" {
			text += ": error: " + a.Error
		}
		out = append(out, text)
	}
	if r.drifts() {
		out = append(out, "would differ from Git: "+r.Owner+" applies it")
	}
	if r.Replaces != nil {
		out = append(out, "a write "+r.Replaces.String())
	}
	if r.MoreChanges > 0 {
		out = append(out, fmt.Sprintf("%d more fields differ", r.MoreChanges))
	}
	return out
}

// WriteDiff writes a result with its changes, as mapd eval -o diff does.
func (r *Result) WriteDiff(w io.Writer, colour report.Colour) error {
	var b bytes.Buffer
	_ = report.WriteDiff(&b, r.Title(), r.Diff(), colour) // a Buffer takes everything
	for _, line := range r.says() {
		b.WriteString("  " + report.Line(line) + "\n")
	}
	_, err := b.WriteTo(w)
	return err
}

func (r *Report) table(b *bytes.Buffer, colour report.Colour) {
	for i := range r.Results {
		_ = r.Results[i].WriteDiff(b, colour) // a Buffer takes everything
	}
	if text := r.left(); text != "" {
		b.WriteString(text + "\n")
	}
	for _, t := range r.tables() {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		_ = t.WriteText(b) // a Buffer takes everything
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	for _, n := range r.notes() {
		b.WriteString("note: " + page.OneLine(n) + "\n")
	}
	b.WriteString(r.Summary() + "\n")
}

const title = "What policies would make of the objects of a cluster"

// write writes the report as a page.
func (r *Report) write(p *page.Page, version string) {
	p.Paragraph(r.Summary() + ".")
	if p.IsHTML() {
		p.Paragraph("By mapd " + version + ".")
	}
	for _, t := range r.tables() {
		p.Heading(2, t.title)
		p.Table(&t.Table)
	}
	for _, n := range r.notes() {
		p.Paragraph(n)
	}
	if len(r.Results) > 0 {
		p.Heading(2, "Objects")
	}
	for i := range r.Results {
		p.Folded(r.Results[i].Title(), "diff", r.Results[i].block())
	}
	if text := r.left(); text != "" {
		p.Paragraph(text)
	}
}

// block returns a result as lines of a diff.
func (r *Result) block() string {
	var b bytes.Buffer
	_ = report.WriteDiff(&b, r.Title(), r.Diff(), false) // a Buffer takes everything
	_, changes, _ := strings.Cut(b.String(), "\n")
	text := "# " + report.Line(r.Title()) + "\n"
	for _, line := range r.says() {
		text += "#   " + report.Line(line) + "\n"
	}
	return strings.ReplaceAll(text+changes, "\n~ ", "\n! ")
}

// rules and remarks have a rule for each policy. An object stands where its file would be:
// namespace/kind/name.
func (r *Report) rules() (out []annotate.Rule) {
	for _, p := range r.Policies {
		if !slices.ContainsFunc(out, func(a annotate.Rule) bool { return a.Name == p.Policy }) {
			out = append(out, annotate.Rule{Name: p.Policy, Summary: "what the policy " + p.Policy + " changes"})
		}
	}
	return out
}

func (r *Report) remarks() (out []annotate.Remark) {
	for i := range r.Results {
		o := &r.Results[i]
		parts := []string{o.Kind, o.Name}
		if o.Namespace != "" {
			parts = append([]string{o.Namespace}, parts...)
		}
		level, rule := "note", ""
		if o.Denied != "" || o.Error != "" {
			level = "error"
		}
		if len(o.By) > 0 {
			rule = o.By[len(o.By)-1].Policy
		}
		out = append(out, annotate.Remark{Rule: rule, Level: level, File: strings.Join(parts, "/"), Message: o.block()})
	}
	return out
}
