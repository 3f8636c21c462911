package suite

import (
	"fmt"
	"strings"

	"github.com/mapd-project/mapd/internal/output/report"
)

// Text returns the outcomes for people: a line for each suite, and above it what failed. Suites
// without cases come last.
// With verbose it has every case and what its policies did.
func (r *Results) Text(verbose, colour bool) string {
	var b strings.Builder
	files := 0
	for rest := r.Outcomes; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].Suite == rest[0].Suite {
			n++
		}
		of := &Results{Outcomes: rest[:n]}
		for _, o := range rest[:n] {
			if verbose || o.Status == Failed || o.Status == Broken {
				o.text(&b, verbose, colour)
			}
		}
		word := report.Colour(colour).Paint("32", "ok  ")
		if of.Count(Failed)+of.Count(Broken) > 0 {
			word = report.Colour(colour).Paint("31", "FAIL")
		}
		fmt.Fprintf(&b, "%s %s: %s\n", word, report.Line(rest[0].Suite), of.counts())
		rest, files = rest[n:], files+1
	}
	for _, file := range r.Empty {
		fmt.Fprintf(&b, "none %s: no cases\n", report.Line(file))
		files++
	}
	if files > 1 && len(r.Outcomes) > 0 {
		fmt.Fprintf(&b, "%d suites: %s\n", files, r.counts())
	}
	r.ordersText(&b)
	switch {
	case r.Focused && files > 1:
		b.WriteString("Of suites with focus, only the cases that have it were run.\n")
	case r.Focused:
		b.WriteString("Only cases with focus were run.\n")
	}
	return b.String()
}

// ordersText says how many orders of policies were run.
func (r *Results) ordersText(b *strings.Builder) {
	runs, cases := 0, 0
	var more []string
	for _, o := range r.Outcomes {
		if o.Orders == nil {
			continue
		}
		runs, cases = runs+o.Orders.Runs, cases+1
		if !o.Orders.Whole {
			more = append(more, fmt.Sprintf("%s (%s): %s", report.Line(o.Name), report.Line(o.where()), o.Orders.Summary()))
		}
	}
	if cases > 0 {
		fmt.Fprintf(b, "orders: %d run for %d %s", runs, cases, map[bool]string{true: "case", false: "cases"}[cases == 1])
		if len(more) == 0 {
			b.WriteString(", which stand for all that there are")
		}
		b.WriteString("\n")
	}
	for _, line := range more {
		b.WriteString("  " + line + "\n")
	}
}

// counts is "3 passed, 1 failed".
func (r *Results) counts() string {
	var parts []string
	for _, s := range []struct {
		status Status
		word   string
	}{{Passed, "passed"}, {Failed, "failed"}, {Broken, "could not be run"}, {Skipped, "skipped"}} {
		if n := r.Count(s.status); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s.word))
		}
	}
	return strings.Join(parts, ", ")
}

func (o *Outcome) text(b *strings.Builder, verbose, colour bool) {
	mark := report.Colour(colour).Paint(map[Status]string{Passed: "32", Failed: "31", Broken: "31", Skipped: "33"}[o.Status], "--- "+strings.ToUpper(string(o.Status)))
	fmt.Fprintf(b, "%s: %s (%s)\n", mark, report.Line(o.Name), report.Line(o.where()))
	indent(b, report.Printable(o.Message))
	if o.Diff != nil {
		indent(b, o.DiffText(colour))
	}
	if verbose && o.Orders != nil {
		indent(b, "orders: "+o.Orders.Summary())
	}
	if verbose || o.Status == Failed {
		indent(b, report.Printable(o.Trace))
	}
}

func indent(b *strings.Builder, text string) {
	for line := range strings.Lines(text) {
		b.WriteString("    " + strings.TrimSuffix(line, "\n") + "\n")
	}
}
