// Package page answers one question: how does text from anywhere stand in a report in
// HTML or Markdown, without becoming part of its markup?
package page

import (
	_ "embed"
	"html"
	"strings"

	"github.com/mapd-project/mapd/internal/output/report"
)

// This package uses no template package. Templates call methods by name, so the
// linker would keep every method of every type: a program half as large again,
// and more memory in a server.

//go:embed head.html
var head string

// Head is a page, which loads nothing else, up to its first word. title is HTML.
func Head(title string) string { return strings.Replace(head, "TITLE", title, 1) }

// Text escapes text for a page, also for an attribute in quotes. It drops NUL,
// which no page can hold.
func Text(s string) string {
	return html.EscapeString(report.Printable(strings.ReplaceAll(s, "\x00", "\uFFFD")))
}

var inCell = strings.NewReplacer("\\", "\\\\", "|", "\\|", "<", "&lt;", "*", "\\*", "_", "\\_", "`", "\\`", "[", "\\[")

// Cell escapes text so that it stays within a cell of a table in Markdown.
func Cell(s string) string { return inCell.Replace(OneLine(s)) }

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
