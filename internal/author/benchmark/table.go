package benchmark

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/mapd-project/mapd/internal/output/page"
)

// WriteTable writes a Result for people: tables, one below the other.
func (r *Result) WriteTable(w io.Writer) error {
	requests := page.Table{Heads: []string{"REQUEST", "ANSWER", "REQUESTS", "REQ/S", "P50", "P90", "P99", "MAX", "CPU", "ALLOCS", "BYTES"}}
	for _, f := range r.Requests {
		requests.Row(f.Name, f.Answer, strconv.FormatUint(f.Requests, 10), number(f.PerSecond),
			duration(f.P50), duration(f.P90), duration(f.P99), duration(f.Max), duration(f.CPU), number(f.Allocations), size(f.Bytes))
	}
	parts := page.Table{Heads: []string{"PART", "TIME", "SHARE", "COST"}}
	for _, p := range r.Parts {
		cost := "-"
		if p.Cost > 0 {
			cost = number(p.Cost)
		}
		parts.Row(strings.TrimSpace(p.Kind+" "+p.Name), duration(p.Time), strconv.FormatFloat(p.Percent, 'f', 1, 64)+"%", cost)
	}
	setup := page.Table{Heads: []string{"SETUP", "TIME"}}
	setup.Row("read", duration(r.Setup.Read))
	setup.Row("compile", duration(r.Setup.Compile))
	tables := []*page.Table{&requests, &parts, &setup}
	if r.Comparison != nil {
		tables = append(tables, r.Comparison.table())
	}
	var b bytes.Buffer
	for i, t := range tables {
		if i > 0 {
			b.WriteByte('\n')
		}
		_ = t.WriteText(&b) // a Buffer takes everything
	}
	_, err := b.WriteTo(w)
	return err
}

func (c *Comparison) table() *page.Table {
	t := &page.Table{Heads: []string{"REQUEST", "FIGURE", "OLD", "NEW", "DELTA", "VERDICT"}}
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
		t.Row(r.Request, r.Figure, show[r.Figure](r.Old), show[r.Figure](r.New), delta, verdict)
	}
	return t
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
