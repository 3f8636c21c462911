package ordercheck

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"

	"github.com/mapd-project/mapd/internal/output/report"
)

// MarshalJSON returns the fields with their two values, those of a PingPong too.
func (d Difference) MarshalJSON() ([]byte, error) {
	type change struct {
		Path   string `json:"path"`
		Before any    `json:"before"`
		After  any    `json:"after"`
	}
	type plain Difference
	out := struct {
		plain
		Changes []change `json:"changes,omitempty"`
		Denied  []string `json:"denied,omitempty"`
	}{plain: plain(d)}
	for _, c := range d.Changes {
		out.Changes = append(out.Changes, change{c.Path, c.Before, c.After})
	}
	if d.Refusals != [2]string{} {
		out.Denied = d.Refusals[:]
	}
	return json.Marshal(out)
}

// Summary says how many orders were run, on one line.
func (r *Result) Summary() string {
	if r.Members < 2 {
		return "fewer than 2 policies met: 1 order"
	}
	if r.Touching == 0 {
		return fmt.Sprintf("%d policies, none of which touches another: 1 order run", r.Members)
	}
	text := fmt.Sprintf("%d policies, %d of which touch others: %d orders run", r.Members, r.Touching, r.Runs)
	if r.Runs == 1 {
		text = strings.TrimSuffix(text, "s run") + " run"
	}
	if r.Whole {
		return text + ", which stand for all " + number(r.Orders)
	}
	return text + " of " + number(r.Orders) + ", and not all that may differ"
}

// number is n, unless that is too long to read.
func number(n *big.Int) string {
	if text := n.String(); len(text) <= 15 {
		return text
	}
	return "more than 10^15"
}

// Text returns a difference as lines.
func (d *Difference) Text() string {
	var b strings.Builder
	switch d.Kind {
	case Order:
		fmt.Fprintf(&b, "the result depends on the order of policies: %s, or %s\n", strings.Join(d.Members, " before "), strings.Join(d.Other, " before "))
		for i, r := range d.Refusals {
			if r != "" {
				order := [2][]string{d.Members, d.Other}[i]
				fmt.Fprintf(&b, "  %s: denied: %s\n", strings.Join(order, " before "), report.Line(r))
			}
		}
	case Again:
		if d.Refusals[0] != "" {
			fmt.Fprintf(&b, "the result is denied as an update: %s\n", report.Line(d.Refusals[0]))
			break
		}
		fmt.Fprintf(&b, "an update with the result changes it, by %s; %s\n", strings.Join(d.Members, ", "), d.Next)
	case PingPong:
		fmt.Fprintf(&b, "policies undo each other in each pass: %s\n", strings.Join(d.Members, ", "))
	}
	if len(d.Changes) > 0 {
		var changes strings.Builder
		_ = report.WriteDiff(&changes, "", d.Changes, false) // a Builder takes everything
		_, text, _ := strings.Cut(changes.String(), "\n")
		for line := range strings.Lines(text) {
			b.WriteString("  " + line)
		}
	}
	return b.String()
}
