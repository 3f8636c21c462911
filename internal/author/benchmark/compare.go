package benchmark

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Limits say which changes of figures are regressions.
type Limits struct {
	// Percent is the largest increase that is no regression.
	Percent float64
	// Time is the smallest increase of a time that can be a regression, whatever its percentage:
	// of a few microseconds, ten percent is noise. For requests per second, the time of one
	// request is compared.
	Time time.Duration
	// Figures are the names of the figures that can be regressions; nil means Stable.
	Figures []string
}

// Stable are the figures that depend little on the load of the machine.
var Stable = []string{"p50", "allocs", "bytes"}

// FigureNames returns the names of all figures that are compared.
func FigureNames() []string {
	var names []string
	for _, g := range figures {
		names = append(names, g.name)
	}
	return names
}

// Comparison is two Results side by side.
type Comparison struct {
	Threshold float64 `json:"thresholdPercent"`
	Rows      []Row   `json:"rows"`
	// New and Gone are the requests that only one of the two has.
	New  []string `json:"new,omitempty"`
	Gone []string `json:"gone,omitempty"`
	// Notes name other differences that change figures.
	Notes []string `json:"notes,omitempty"`
}

// Row compares one figure of one request. Delta is in percent, nil if Old is 0. Only a Checked
// row can be a Regression.
type Row struct {
	Request    string   `json:"request"`
	Figure     string   `json:"figure"`
	Old        float64  `json:"old"`
	New        float64  `json:"new"`
	Delta      *float64 `json:"deltaPercent,omitempty"`
	Checked    bool     `json:"checked"`
	Regression bool     `json:"regression"`

	time bool // or a rate, which depends on time
}

// figure describes one figure that is compared.
type figure struct {
	name, field string
	of          func(*Figures) float64
	show        func(float64) string
	rate, time  bool // more is better; a time
}

// The maximum is not compared, because it depends on a single request.
var figures = []figure{
	{name: "req/s", field: "requestsPerSecond", of: func(f *Figures) float64 { return f.PerSecond }, show: number, rate: true},
	{name: "p50", field: "p50Nanoseconds", of: func(f *Figures) float64 { return f.P50 }, show: duration, time: true},
	{name: "p90", field: "p90Nanoseconds", of: func(f *Figures) float64 { return f.P90 }, show: duration, time: true},
	{name: "p99", field: "p99Nanoseconds", of: func(f *Figures) float64 { return f.P99 }, show: duration, time: true},
	{name: "cpu", field: "cpuNanoseconds", of: func(f *Figures) float64 { return f.CPU }, show: duration, time: true},
	{name: "allocs", field: "allocations", of: func(f *Figures) float64 { return f.Allocations }, show: number},
	{name: "bytes", field: "allocatedBytes", of: func(f *Figures) float64 { return f.Bytes }, show: size},
}

// Compare compares current with an earlier Result. It pairs requests by their
// names.
func Compare(earlier, current *Result, limits Limits) *Comparison {
	c := &Comparison{Threshold: limits.Percent, Notes: differences(earlier, current)}
	if limits.Figures == nil {
		limits.Figures = Stable
	}
	old := map[string]*Figures{}
	for i := range earlier.Requests {
		old[earlier.Requests[i].Name] = &earlier.Requests[i]
	}
	for i := range current.Requests {
		f := &current.Requests[i]
		before, ok := old[f.Name]
		if !ok {
			c.New = append(c.New, f.Name)
			continue
		}
		delete(old, f.Name)
		if before.Answer != f.Answer {
			c.Notes = append(c.Notes, fmt.Sprintf("%s was answered %q and is %q now", f.Name, before.Answer, f.Answer))
		}
		for _, g := range figures {
			c.Rows = append(c.Rows, g.row(before, f, limits))
		}
	}
	for _, f := range earlier.Requests {
		if old[f.Name] != nil {
			c.Gone = append(c.Gone, f.Name)
		}
	}
	return c
}

func (g figure) row(before, now *Figures, limits Limits) Row {
	r := Row{Request: now.Name, Figure: g.name, Old: g.of(before), New: g.of(now), Checked: slices.Contains(limits.Figures, g.name), time: g.time || g.rate}
	if r.Old == 0 {
		return r // nothing was measured
	}
	delta := min(100*(r.New-r.Old)/r.Old, math.MaxFloat64) // JSON has no infinity
	r.Delta = &delta
	worse, longer := delta, r.New-r.Old
	if g.rate {
		worse, longer = -delta, 1e9/r.New-1e9/r.Old
	}
	r.Regression = r.Checked && worse > limits.Percent && (!g.time && !g.rate || longer >= float64(limits.Time))
	return r
}

// Regressions returns the number of rows that are regressions, and the number of checked rows.
func (c *Comparison) Regressions() (n, of int) {
	for _, r := range c.Rows {
		if r.Checked {
			of++
		}
		if r.Regression {
			n++
		}
	}
	return n, of
}

// OnlyTimes reports whether there are regressions and all are of times.
func (c *Comparison) OnlyTimes() bool {
	n, _ := c.Regressions()
	return n > 0 && !slices.ContainsFunc(c.Rows, func(r Row) bool { return r.Regression && !r.time })
}

// differences describes differences between two Results, besides mapd and the policies, that
// influence figures.
func differences(earlier, current *Result) []string {
	var notes []string
	for _, d := range []struct {
		what     string
		old, new any
	}{
		{"platform", earlier.Platform, current.Platform},
		{"CPUs", earlier.CPUs, current.CPUs},
		{"concurrency", earlier.Concurrency, current.Concurrency},
		{"Go", earlier.Go, current.Go},
	} {
		if d.old != d.new {
			notes = append(notes, strings.TrimSpace(fmt.Sprintf("%s: %v then, %v now", d.what, d.old, d.new)))
		}
	}
	return notes
}
