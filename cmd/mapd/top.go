//go:build !server

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/mapd-project/mapd/internal/cluster/history"
	"github.com/mapd-project/mapd/internal/operate/replicas"
	"github.com/mapd-project/mapd/internal/output/page"
	"github.com/mapd-project/mapd/internal/output/report"
)

type topFlags struct {
	replicas replicaFlags
	sort     string
	once     bool
	interval time.Duration
	most     int
	output   string
}

func newTop(s streams) *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show which policies take the most time, fail or change the most",
		Long: `Show which policies take the most time, fail or change the most, on all replicas.

On a terminal top shows what happens per second, and refreshes it until it is
interrupted. With --once, or if standard output is no terminal, it prints one table of
what has happened since the replicas began; with -o json or yaml, all that the replicas
have counted.
` + topExits,
		Example: `  mapd top
  mapd top --once --sort errors
  mapd top -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.replicas.check("top"); err != nil {
				return err
			}
			if f.interval < time.Second {
				return usagef("top: --interval %s: must be at least 1s", f.interval)
			}
			if f.most < 1 {
				return usagef("top: --limit %d: must be positive", f.most)
			}
			if f.once || f.output != "table" || !isTerminal(s.out) {
				ctx, stop := interruptible(cmd.Context(), f.replicas.timeout)
				defer stop()
				return topOnce(ctx, s, &f)
			}
			const ever = 10 * 365 * 24 * time.Hour
			ctx, stop := interruptible(cmd.Context(), ever)
			defer stop()
			return topLive(ctx, s, &f)
		},
	}
	fl := cmd.Flags()
	f.replicas.add(fl)
	choiceVarP(fl, &f.sort, "sort", "", "time", "", "time", "errors", "changes")
	fl.BoolVar(&f.once, "once", false, "print one table, also on a terminal")
	fl.DurationVar(&f.interval, "interval", 2*time.Second, "how often a terminal is refreshed")
	fl.IntVar(&f.most, "limit", 30, "how many policies and bindings a table shows")
	choiceVarP(fl, &f.output, "output", "o", "table", "", "table", "json", "yaml")
	return cmd
}

func topOnce(ctx context.Context, s streams, f *topFlags) error {
	set, _, err := f.replicas.find(ctx, s)
	if err != nil {
		return err
	}
	answers, err := replicas.Ask[history.CountsAnswer](ctx, set, history.CountsName, nil)
	if err != nil {
		return err
	}
	out := topOutput{Policies: f.sorted(sum(answers)), Replicas: replicasOf(answers, func(a *history.CountsAnswer) history.Header { return a.Header })}
	if f.output != "table" {
		err = writeOutput(s.out, f.output, out)
	} else {
		err = topTable(s.out, f, out.Policies, 0)
	}
	return cmp.Or(err, unanswered(s, out.Replicas))
}

// topOutput is what top prints as JSON and YAML.
type topOutput struct {
	Policies []*history.Counted `json:"policies"`
	Replicas []replicaOutput    `json:"replicas"`
}

// topLive refreshes the terminal until ctx is done. It finds the replicas again each time,
// since some may be added or removed.
func topLive(ctx context.Context, s streams, f *topFlags) error {
	var last []replicas.Answer[history.CountsAnswer]
	var at time.Time
	for {
		asking, cancel := context.WithTimeout(ctx, f.replicas.timeout)
		set, _, err := f.replicas.find(asking, s)
		var now []replicas.Answer[history.CountsAnswer]
		if err == nil {
			now, err = replicas.Ask[history.CountsAnswer](asking, set, history.CountsName, nil)
		}
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil // interrupted
		case err != nil && last == nil:
			return err
		}
		const clear = "\x1b[H\x1b[2J"
		fmt.Fprint(s.out, clear)
		if err != nil {
			fmt.Fprintln(s.out, report.Printable(err.Error()))
		} else {
			head, seconds, total := "since the replicas began", 0.0, sum(now)
			if last != nil {
				seconds = time.Since(at).Seconds()
				head, total = fmt.Sprintf("per second, in the last %.0f s", seconds), since(last, now)
			}
			fmt.Fprintf(s.out, "%d replicas, %s\n", len(now), head)
			if err := topTable(s.out, f, f.sorted(total), seconds); err != nil {
				return err
			}
			_ = unanswered(streams{err: s.out}, replicasOf(now, func(a *history.CountsAnswer) history.Header { return a.Header }))
			last, at = now, time.Now()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(f.interval):
		}
	}
}

// modeOf is a policy by a binding in one mode.
type modeOf struct {
	history.Pair
	mode string
}

// since returns the counts between two rounds of answers. A replica that did not answer in one
// of them counts nothing, and that includes one that started in between. A count that was reset
// in between counts as it is.
func since(last, now []replicas.Answer[history.CountsAnswer]) map[history.Pair]*history.Counted {
	before := map[string]*history.CountsAnswer{}
	for i := range last {
		if last[i].Err == nil {
			before[last[i].Value.Replica] = &last[i].Value
		}
	}
	counted := slices.Clone(now)
	for i := range counted {
		a := &counted[i]
		old := before[a.Value.Replica]
		if old == nil {
			a.Value.Counts = nil
			continue
		}
		was := map[modeOf]history.Counts{}
		for _, c := range old.Counts {
			was[modeOf{c.Pair, c.Mode}] = c.Counts
		}
		a.Value.Counts = slices.Clone(a.Value.Counts)
		for k := range a.Value.Counts {
			c := &a.Value.Counts[k]
			c.Counts = c.Since(was[modeOf{c.Pair, c.Mode}])
		}
	}
	return sum(counted)
}

// sorted returns the counts in the order of --sort.
func (f *topFlags) sorted(total map[history.Pair]*history.Counted) []*history.Counted {
	all := make([]*history.Counted, 0, len(total))
	for _, c := range total {
		all = append(all, c)
	}
	by := map[string]func(c *history.Counted) uint64{
		"time":    func(c *history.Counted) uint64 { return uint64(max(c.Time, 0)) },
		"errors":  func(c *history.Counted) uint64 { return c.Failed },
		"changes": func(c *history.Counted) uint64 { return c.Changed + c.Would },
	}[f.sort]
	slices.SortFunc(all, func(a, b *history.Counted) int { return cmp.Or(cmp.Compare(by(b), by(a)), a.Compare(b.Pair)) })
	return all
}

// topTable prints the counts: totals or, unless seconds is 0, per second.
func topTable(w io.Writer, f *topFlags, all []*history.Counted, seconds float64) error {
	t := page.Table{Heads: []string{"POLICY", "BINDING", "TIME", "PER REQUEST", "SEEN", "WOULD", "CHANGED", "FAILED"}}
	for i, c := range all {
		if i == f.most {
			break
		}
		each := time.Duration(0)
		if c.Seen > 0 {
			each = c.Time / time.Duration(c.Seen)
		}
		spent, count := c.Time, func(n uint64) string { return fmt.Sprint(n) }
		if seconds > 0 {
			spent = time.Duration(float64(spent) / seconds)
			count = func(n uint64) string { return fmt.Sprintf("%.1f", float64(n)/seconds) }
		}
		t.Row(c.Policy, dash(c.Binding), short(spent).String(), short(each).String(), count(c.Seen), count(c.Would), count(c.Changed), count(c.Failed))
	}
	if err := t.WriteText(w); err != nil {
		return err
	}
	if more := len(all) - f.most; more > 0 {
		fmt.Fprintf(w, "and %d more\n", more)
	}
	return nil
}

// short rounds a duration for display.
func short(d time.Duration) time.Duration {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(10 * time.Nanosecond)
}
