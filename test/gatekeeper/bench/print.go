package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/perf/benchmath"
	"golang.org/x/perf/benchunit"
)

// printer writes rows as they come.
type printer struct {
	w       io.Writer
	format  string // table, markdown or benchfmt
	width   int    // of the longest name of a row
	table   *table // the one that is being written
	columns []int  // how wide they are
	judge   bool   // whether goals are met
	met     int
	missed  []string
}

var formats = []string{"table", "markdown", "benchfmt"}

// fact is something to know about a run.
type fact struct{ key, value string }

func (p *printer) facts(all []fact) {
	for _, f := range all {
		if p.format == "markdown" {
			fmt.Fprintf(p.w, "- %s: %s\n", f.key, f.value)
		} else {
			fmt.Fprintf(p.w, "%s: %s\n", f.key, f.value)
		}
	}
}

func (p *printer) row(r *row, rs results) {
	if p.format == "benchfmt" {
		p.lines(r, rs)
		return
	}
	if p.table != r.table {
		p.head(r.table)
	}
	cells := []string{strings.TrimPrefix(r.name, r.table.name+"/")}
	summaries := map[string]benchmath.Summary{}
	for _, c := range r.table.columns {
		s, ok := rs.summary(c)
		if !ok {
			cells = append(cells, "-")
			continue
		}
		summaries[c.head] = s
		cells = append(cells, cell(c, s))
	}
	p.line(append(cells, p.goals(r, summaries)))
}

func (p *printer) goals(r *row, summaries map[string]benchmath.Summary) string {
	var texts []string
	for _, g := range r.goals {
		s, ok := summaries[g.column]
		if !ok || !p.judge {
			continue
		}
		text := p.goal(r, g)
		if g.met(s.Center) {
			p.met++
			text += " met"
		} else {
			p.missed = append(p.missed, r.name+" "+text)
			text += " not met"
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, ", ")
}

func (p *printer) goal(r *row, g goal) string {
	i := slices.IndexFunc(r.table.columns, func(c column) bool { return c.head == g.column })
	if g.atMost > 0 {
		return g.column + " ≤ " + limit(r.table.columns[i], g.atMost)
	}
	return g.column + " ≥ " + limit(r.table.columns[i], g.atLeast)
}

// limit writes a number as somebody would say it.
func limit(c column, v float64) string {
	if c.over != "" {
		return strconv.FormatFloat(v, 'f', -1, 64) + "×"
	}
	number := strings.TrimSpace(figure(c, v))
	at := strings.IndexFunc(number, unicode.IsLetter)
	return strings.TrimRight(strings.TrimRight(number[:at], "0"), ".") + number[at:]
}

func cell(c column, s benchmath.Summary) string {
	if c.unit == allocs {
		return fmt.Sprintf("%.0f", s.Center)
	}
	return fmt.Sprintf("%s ± %s", figure(c, s.Center), s.PctRangeString())
}

// figure writes a number with the three digits that mean something.
func figure(c column, v float64) string {
	switch {
	case c.over != "" && v < 10:
		return fmt.Sprintf("%.2f×", v)
	case c.over != "" && v < 100:
		return fmt.Sprintf("%.1f×", v)
	case c.over != "":
		return fmt.Sprintf("%.0f×", v)
	case c.unit == kept:
		return benchunit.Scale(v, benchunit.Binary) + "B"
	}
	return benchunit.Scale(v, benchunit.Decimal) + "s"
}

func (p *printer) head(t *table) {
	p.table = t
	heads := []string{t.name}
	p.columns = []int{max(p.width, len(t.name))}
	for _, c := range t.columns {
		heads = append(heads, c.head)
		p.columns = append(p.columns, max(len(c.head), 14))
	}
	heads = append(heads, "goals")
	fmt.Fprintf(p.w, "\n%s\n", t.title)
	if p.format == "markdown" {
		fmt.Fprintln(p.w)
	}
	p.line(heads)
	if p.format == "markdown" {
		p.line(slices.Repeat([]string{"---"}, len(heads)))
	}
}

func (p *printer) line(cells []string) {
	if p.format == "markdown" {
		fmt.Fprintf(p.w, "| %s |\n", strings.Join(cells, " | "))
		return
	}
	var b strings.Builder
	for i, c := range cells[:len(cells)-1] {
		pad := strings.Repeat(" ", max(p.columns[i]-utf8.RuneCountInString(c), 0))
		if i == 0 {
			b.WriteString(c + pad)
		} else {
			b.WriteString("  " + pad + c)
		}
	}
	fmt.Fprintln(p.w, strings.TrimRight(b.String()+"  "+cells[len(cells)-1], " "))
}

// lines are all samples in the format of Go's benchmarks.
func (p *printer) lines(r *row, rs results) {
	for _, side := range slices.Sorted(maps.Keys(rs)) {
		for _, s := range rs[side] {
			fmt.Fprintf(p.w, "Benchmark%s/side=%s\t%d", r.name, side, s.n)
			for _, unit := range slices.Sorted(maps.Keys(s.figures)) {
				name, v := unit, s.figures[unit]
				switch unit {
				case perOp:
					name, v = "ns/op", v*1e9
				case kept:
					name = "kept-B"
				}
				fmt.Fprintf(p.w, "\t%.6g %s", v, name)
			}
			fmt.Fprintln(p.w)
		}
	}
}

// summary says how many goals are met.
func (p *printer) summary() {
	if p.format == "benchfmt" || !p.judge {
		return
	}
	fmt.Fprintf(p.w, "\n%d of %d goals met", p.met, p.met+len(p.missed))
	if len(p.missed) > 0 {
		fmt.Fprintf(p.w, "; not met: %s", strings.Join(p.missed, "; "))
	}
	fmt.Fprintln(p.w)
}
