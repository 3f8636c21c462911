package benchmark

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/mapd-project/mapd/internal/output/report"
)

// WriteTable writes a Result for people.
func (r *Result) WriteTable(w io.Writer) error {
	var t table
	t.row("REQUEST", "ANSWER", "REQUESTS", "REQ/S", "P50", "P90", "P99", "MAX", "CPU", "ALLOCS", "BYTES")
	for _, f := range r.Requests {
		t.row(f.Name, f.Answer, strconv.FormatUint(f.Requests, 10), number(f.PerSecond),
			duration(f.P50), duration(f.P90), duration(f.P99), duration(f.Max), duration(f.CPU), number(f.Allocations), size(f.Bytes))
	}
	t.end()
	t.row("PART", "TIME", "SHARE", "COST")
	for _, p := range r.Parts {
		cost := "-"
		if p.Cost > 0 {
			cost = number(p.Cost)
		}
		t.row(strings.TrimSpace(p.Kind+" "+p.Name), duration(p.Time), strconv.FormatFloat(p.Percent, 'f', 1, 64)+"%", cost)
	}
	t.end()
	t.row("SETUP", "TIME")
	t.row("read", duration(r.Setup.Read))
	t.row("compile", duration(r.Setup.Compile))
	if r.Comparison != nil {
		t.end()
		r.Comparison.rows(&t)
	}
	return t.write(w)
}

func (c *Comparison) rows(t *table) {
	t.row("REQUEST", "FIGURE", "OLD", "NEW", "DELTA", "VERDICT")
	show := map[string]func(float64) string{}
	for _, g := range figures {
		show[g.name] = g.show
	}
	for _, r := range c.Rows {
		delta, verdict := "-", "not checked"
		if r.Checked {
			verdict = ""
		}
		if r.Delta != nil {
			delta = fmt.Sprintf("%+.1f%%", math.Round(*r.Delta*10)/10+0) // and never -0
		}
		if r.Regression {
			verdict = "regression"
		}
		t.row(r.Request, r.Figure, show[r.Figure](r.Old), show[r.Figure](r.New), delta, verdict)
	}
}

// table is several tables, one below the other.
type table struct {
	text bytes.Buffer
	rows [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

// end ends a table; the next one has its own column widths.
func (t *table) end() {
	t.flush()
	t.text.WriteByte('\n')
}

func (t *table) flush() {
	var b bytes.Buffer
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, cells := range t.rows {
		for i, c := range cells {
			cells[i] = report.Line(c)
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	t.rows = nil
	tw.Flush() // into memory
	for line := range strings.Lines(b.String()) {
		t.text.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

func (t *table) write(w io.Writer) error {
	t.flush()
	_, err := w.Write(t.text.Bytes())
	return err
}

// duration formats nanoseconds with three digits.
func duration(ns float64) string { return scaled(ns, 1000, "ns", "µs", "ms", "s") }

func size(bytes float64) string { return scaled(bytes, 1024, "B", "KiB", "MiB", "GiB") }

// scaled formats a value with three digits, in the largest unit that it
// reaches.
func scaled(v, step float64, units ...string) string {
	i := 0
	for ; i < len(units)-1 && math.Round(v) >= step; i++ {
		v /= step
	}
	digits := 0
	switch {
	case i == 0 || v >= 99.95:
	case v >= 9.995:
		digits = 1
	default:
		digits = 2
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + units[i]
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }
