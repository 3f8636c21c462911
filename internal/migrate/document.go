package migrate

import (
	_ "embed"
	htmltemplate "html/template"
	"io"
	"strings"
	texttemplate "text/template"

	"github.com/mapd-project/mapd/internal/report"
)

var (
	//go:embed report.md.tmpl
	markdownText string
	//go:embed report.html.tmpl
	htmlText string

	markdown = texttemplate.Must(texttemplate.New("report").Funcs(texttemplate.FuncMap{
		"result": Result, "show": Show, "cell": cell, "fence": fence,
	}).Parse(markdownText))
	page = htmltemplate.Must(htmltemplate.New("report").Funcs(htmltemplate.FuncMap{
		"result": Result, "show": Show,
	}).Parse(htmlText))
)

// WriteMarkdown writes the report as Markdown.
func (r *Report) WriteMarkdown(w io.Writer) error { return markdown.Execute(w, r) }

// WriteHTML writes the report as one page that needs nothing else.
func (r *Report) WriteHTML(w io.Writer) error { return page.Execute(w, r) }

// cell is text that stays within a cell of a table.
func cell(s string) string {
	return strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", "*", "\\*", "_", "\\_", "`", "\\`", "[", "\\[").Replace(oneLine(s))
}

// fence is text between fences that it does not contain.
func fence(s string) string {
	mark := "```"
	for strings.Contains(s, mark) {
		mark += "`"
	}
	return mark + "\n" + strings.TrimRight(report.Printable(s), "\n") + "\n" + mark
}
