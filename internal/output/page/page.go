// Package page lays out reports for people: tables for a terminal, and pages in Markdown and
// HTML. It escapes all text, so that no input becomes markup. Start reading at Page and Table.
package page

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"io"
	"strings"

	"github.com/mapd-project/mapd/internal/output/report"
)

// This package uses no template package. Templates call methods by name, so the
// linker would keep every method of every type: a program half as large again,
// and more memory in a server.

//go:embed head.html
var head string

// Page is a report in Markdown, or in HTML that loads nothing else. What is added to it is
// text, each as a block of its own.
type Page struct {
	b    bytes.Buffer
	html bool
}

// Markdown begins a report in Markdown.
func Markdown(title string) *Page {
	p := &Page{}
	p.b.WriteString("# " + cell(title) + "\n")
	return p
}

// HTML begins a report in HTML.
func HTML(title string) *Page {
	p := &Page{html: true}
	p.b.WriteString(strings.Replace(head, "TITLE", text(title), 1) + "<h1>" + text(title) + "</h1>\n")
	return p
}

// IsHTML reports whether the page is HTML, where long parts can be folded.
func (p *Page) IsHTML() bool { return p.html }

// Heading adds the title of a part; level 2 is below that of the page.
func (p *Page) Heading(level int, s string) {
	if p.html {
		fmt.Fprintf(&p.b, "<h%d>%s</h%[1]d>\n", level, text(s))
		return
	}
	p.b.WriteString("\n" + strings.Repeat("#", level) + " " + cell(s) + "\n")
}

// Paragraph adds text.
func (p *Page) Paragraph(s string) {
	if p.html {
		p.b.WriteString("<p>" + text(s) + "</p>\n")
		return
	}
	p.b.WriteString("\n" + cell(s) + "\n")
}

// List adds a list.
func (p *Page) List(items []string) {
	if !p.html {
		p.b.WriteString("\n")
		for _, s := range items {
			p.b.WriteString("- " + cell(s) + "\n")
		}
		return
	}
	p.b.WriteString("<ul>\n")
	for _, s := range items {
		p.b.WriteString("<li>" + text(s) + "</li>\n")
	}
	p.b.WriteString("</ul>\n")
}

// Code adds text as it is. language, which only Markdown uses, may be empty.
func (p *Page) Code(language, s string) {
	if p.html {
		p.b.WriteString("<pre>" + text(s) + "</pre>\n")
		return
	}
	p.b.WriteString("\n" + Fence(language, s) + "\n")
}

// Folded adds text like Code, folded in HTML until the reader opens it.
func (p *Page) Folded(summary, language, s string) {
	if !p.html {
		p.Code(language, s)
		return
	}
	p.b.WriteString("<details><summary>" + text(report.Line(summary)) + "</summary>\n")
	p.Code(language, s)
	p.b.WriteString("</details>\n")
}

// verdict is the head of the column with coloured cells.
const verdict = "Verdict"

// Table adds a table.
func (p *Page) Table(t *Table) {
	if !p.html {
		p.b.WriteString("\n| " + strings.Join(t.Heads, " | ") + " |\n|" + strings.Repeat(" --- |", len(t.Heads)) + "\n")
		for _, r := range t.rows {
			for _, c := range r.texts(cell, markdownLink) {
				p.b.WriteString("| " + c + " ")
			}
			p.b.WriteString("|\n")
		}
		return
	}
	p.b.WriteString("<table>\n<thead><tr><th>" + strings.Join(t.Heads, "</th><th>") + "</th></tr></thead>\n<tbody>\n")
	for _, r := range t.rows {
		p.b.WriteString("<tr>")
		for i, c := range r.texts(func(s string) string { return text(OneLine(s)) }, htmlLink) {
			class := ""
			if t.Heads[i] == verdict {
				class = ` class="` + c + `"`
			}
			p.b.WriteString("<td" + class + ">" + c + "</td>")
		}
		p.b.WriteString("</tr>\n")
	}
	p.b.WriteString("</tbody>\n</table>\n")
}

// texts returns the cells of a row in a markup.
func (r *row) texts(escape func(string) string, link func(word, to string) string) []string {
	var out []string
	for _, c := range r.cells {
		out = append(out, escape(c))
	}
	if r.lines == nil {
		return out
	}
	lines := make([]string, len(r.lines))
	for i, l := range r.lines {
		lines[i] = escape(l.Text)
		if l.Word != "" {
			lines[i] = link(escape(l.Word), l.Link) + ": " + lines[i]
		}
	}
	return append(out, strings.Join(lines, "<br>"))
}

func markdownLink(word, to string) string { return "[" + word + "](" + to + ")" }
func htmlLink(word, to string) string     { return `<a href="` + text(to) + `">` + word + "</a>" }

// WriteTo writes the page.
func (p *Page) WriteTo(w io.Writer) (int64, error) {
	if p.html {
		p.b.WriteString("</body>\n</html>\n")
	}
	return p.b.WriteTo(w)
}

// text escapes text for HTML, including quoted attributes. It drops NUL, which HTML cannot
// contain.
func text(s string) string {
	return html.EscapeString(report.Printable(strings.ReplaceAll(s, "\x00", "\uFFFD")))
}

var inCell = strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", "*", "\\*", "_", "\\_", "`", "\\`", "[", "\\[")

// cell escapes text so that it stays within a cell of a table in Markdown.
func cell(s string) string { return inCell.Replace(OneLine(s)) }

// OneLine puts all words of a text on one line.
func OneLine(s string) string { return report.Printable(strings.Join(strings.Fields(s), " ")) }

// Fence puts text between fences that it does not contain. language may be empty.
func Fence(language, s string) string {
	mark := "```"
	for strings.Contains(s, mark) {
		mark += "`"
	}
	return mark + language + "\n" + strings.TrimRight(report.Printable(s), "\n") + "\n" + mark
}
