package page

import (
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mapd-project/mapd/internal/output/report"
)

// Table is a table for a terminal, or for a Page. Its cells are text.
type Table struct {
	Heads []string
	rows  []row
}

// row has the cells of one row, and the lines of the last cell if it has several.
type row struct {
	cells []string
	lines []Line
}

// Line is one line of a cell. If Link, a URL, is set, Word is written before Text and links to
// it.
type Line struct{ Word, Link, Text string }

func (l Line) String() string {
	if l.Word == "" {
		return l.Text
	}
	return l.Word + ": " + l.Text
}

// Row adds a row.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, row{cells: cells}) }

// RowWith adds a row whose last cell has several lines.
func (t *Table) RowWith(lines []Line, cells ...string) {
	t.rows = append(t.rows, row{cells, lines})
}

// Len returns the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// Clear removes the heads and the rows, for the next part of a table that is written in parts.
func (t *Table) Clear() { *t = Table{} }

// WriteText writes the table in columns. Lines of a cell stand below each other.
func (t *Table) WriteText(w io.Writer) error { return t.WriteFirst(w, len(t.rows)) }

// WriteFirst is WriteText with the first rows only.
func (t *Table) WriteFirst(w io.Writer, most int) error {
	var rows [][]string
	if t.Heads != nil {
		rows = append(rows, t.Heads)
	}
	for _, r := range t.rows[:min(most, len(t.rows))] {
		if r.lines == nil {
			rows = append(rows, r.cells)
		}
		cells := r.cells
		for _, l := range r.lines {
			rows = append(rows, append(slices.Clone(cells), OneLine(l.String())))
			cells = make([]string, len(cells))
		}
	}
	var b strings.Builder
	for _, line := range Columns(rows) {
		b.WriteString(line + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Columns returns rows as lines whose cells stand below each other. Characters that end a
// line, or that nobody sees, are escaped.
func Columns(rows [][]string) []string {
	var widths []int
	cells := make([][]string, len(rows))
	for i, r := range rows {
		cells[i] = make([]string, len(r))
		for j, c := range r {
			if j == len(widths) {
				widths = append(widths, 0)
			}
			cells[i][j] = report.Line(c)
			widths[j] = max(widths[j], utf8.RuneCountInString(cells[i][j]))
		}
	}
	lines := make([]string, len(rows))
	for i, r := range cells {
		var b strings.Builder
		for j, c := range r {
			b.WriteString(c + strings.Repeat(" ", widths[j]-utf8.RuneCountInString(c)+2))
		}
		lines[i] = strings.TrimRight(b.String(), " ")
	}
	return lines
}
