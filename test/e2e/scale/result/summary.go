package result

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mapd-project/mapd/test/load"
)

// Phases are the parts of a run, in their order.
const (
	Without = "without mapd"
	Native  = "native"
	With    = "mapd"
	Faults  = "mapd, faults"
	// Between two phases policies are written or removed. End is when nothing more is sent.
	Between = "between"
	End     = "end"
)

// A Summary is what a run's lines say.
type Summary struct {
	Run     Run
	End     float64
	Phases  []Phase
	Faults  []Fault
	Changes []Change
	Audits  []Audit
	Checks  []Check
	Notes   []string
	Uses    []Line // those with a Use, by time
	Writes  []Line // those with a Write
	Whos    []string
}

// A Phase is what was measured between two times.
type Phase struct {
	Name     string
	From, To float64
	Writes   map[string]Writes // by what was written
	Uses     map[string]Used   // by process
}

// Writes are those of one kind.
type Writes struct {
	N, Refused, Unanswered int
	load.Latency           // of those that were accepted
}

// Used is what a process used in a phase.
type Used struct {
	Cores float64 // on average
	MiB   float64 // at the most, RSS
}

// A Fault is a Span and what became of the writes.
type Fault struct {
	Span
	From float64
	// Refused and Unanswered are writes that were due until the next fault; Last is how
	// long after the fault's beginning the last of them was due.
	Refused, Unanswered int
	Last                float64
	// Longest is how long a write took that was due then.
	Longest float64
}

// refused says that a server answered and did not write.
func (w *Write) refused() bool { return w.Code >= 300 }

// Summarize adds up what lines say.
func Summarize(lines []Line) (*Summary, error) {
	s := &Summary{}
	lines = slices.Clone(lines)
	slices.SortStableFunc(lines, func(a, b Line) int { return cmp.Compare(a.T, b.T) })
	there := map[string]bool{}
	for _, l := range lines {
		s.End = max(s.End, l.T)
		switch {
		case l.Run != nil:
			s.Run = *l.Run
		case l.Phase != "":
			if n := len(s.Phases); n > 0 {
				s.Phases[n-1].To = l.T
			}
			s.Phases = append(s.Phases, Phase{Name: l.Phase, From: l.T})
		case l.Fault != nil:
			s.Faults = append(s.Faults, Fault{Span: *l.Fault, From: l.T})
		case l.Change != nil:
			s.Changes = append(s.Changes, *l.Change)
		case l.Audit != nil:
			s.Audits = append(s.Audits, *l.Audit)
		case l.Check != nil:
			s.Checks = append(s.Checks, *l.Check)
		case l.Note != "":
			s.Notes = append(s.Notes, l.Note)
		case l.Use != nil:
			s.Uses = append(s.Uses, l)
			there[l.Use.Who] = true
		case l.Write != nil:
			s.Writes = append(s.Writes, l)
		}
	}
	if s.Run.Nodes == 0 {
		return nil, errors.New("there is no line that says what was run")
	}
	s.Whos = slices.Sorted(maps.Keys(there))
	for i := range s.Phases {
		p := &s.Phases[i]
		if p.To == 0 {
			p.To = s.End
		}
		p.Writes, p.Uses = writesOf(s.Writes, p.From, p.To), usesOf(s.Uses, p.From, p.To)
	}
	for i := range s.Faults {
		f := &s.Faults[i]
		to := s.End
		if i+1 < len(s.Faults) {
			to = s.Faults[i+1].From
		}
		for _, l := range s.Writes {
			if l.T < f.From || l.T >= to {
				continue
			}
			f.Longest = max(f.Longest, l.Write.MS/1000)
			switch {
			case l.Write.Code == 0:
				f.Unanswered++
			case l.Write.refused():
				f.Refused++
			default:
				continue
			}
			f.Last = l.T - f.From
		}
	}
	return s, nil
}

func writesOf(lines []Line, from, to float64) map[string]Writes {
	times := map[string][]time.Duration{}
	out := map[string]Writes{}
	for _, l := range lines {
		if l.T < from || l.T >= to {
			continue
		}
		w := out[l.Write.What]
		w.N++
		switch {
		case l.Write.Code == 0:
			w.Unanswered++
		case l.Write.refused():
			w.Refused++
		default:
			times[l.Write.What] = append(times[l.Write.What], time.Duration(l.Write.MS*float64(time.Millisecond)))
		}
		out[l.Write.What] = w
	}
	for what, w := range out {
		w.Latency = load.Summarize(times[what])
		out[what] = w
	}
	return out
}

func usesOf(lines []Line, from, to float64) map[string]Used {
	type state struct {
		last   Line
		cpu, s float64
	}
	states := map[string]*state{}
	out := map[string]Used{}
	for _, l := range lines {
		if l.T < from || l.T > to {
			continue
		}
		u := out[l.Use.Who]
		u.MiB = max(u.MiB, l.Use.MiB)
		st := states[l.Use.Who]
		switch {
		case st == nil:
			st = &state{}
			states[l.Use.Who] = st
		case st.last.Use.PID == l.Use.PID: // otherwise it was started again
			st.cpu += l.Use.CPU - st.last.Use.CPU
			st.s += l.T - st.last.T
		}
		st.last = l
		if st.s > 0 {
			u.Cores = st.cpu / st.s
		}
		out[l.Use.Who] = u
	}
	return out
}

// Bad counts objects that are not as the library says, and accepted ones that are gone.
func (s *Summary) Bad() (checked, wrong, lost int) {
	for _, c := range s.Checks {
		checked, wrong, lost = checked+c.Objects, wrong+c.Wrong, lost+c.Lost
	}
	return checked, wrong, lost
}

// whats are the kinds of writes, in the order of tables.
var whats = []string{"Pod", "ConfigMap", "update", "Lease"}

// Print writes the tables in Markdown.
func (s *Summary) Print(w io.Writer) error {
	var b strings.Builder
	r := s.Run
	phases := slices.DeleteFunc(slices.Clone(s.Phases), func(p Phase) bool { return p.Name == Between || p.Name == End })
	fmt.Fprintf(&b, "%d nodes, %d Pods, %d policies (%d of them for Pods), %d replicas, %d API servers; %d writes a second of the program's own, %d rollouts a minute, Leases of %d s\n",
		r.Nodes, r.Pods, r.Policies, r.PodPolicies, r.Replicas, r.APIServers, r.Writes, r.Rollouts, r.Lease)
	fmt.Fprintf(&b, "commit %s, %s, load %s before it, %s\n\n", r.Commit, r.Machine, r.Load, r.Time.UTC().Format("2006-01-02 15:04"))

	b.WriteString("| writes: p50 / p99 |")
	for _, p := range phases {
		fmt.Fprintf(&b, " %s |", p.Name)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(phases)) + "\n")
	for _, what := range whats {
		fmt.Fprintf(&b, "| %s |", what)
		for _, p := range phases {
			w := p.Writes[what]
			fmt.Fprintf(&b, " %s / %s (%d) |", ms(w.P50), ms(w.P99), w.N)
		}
		b.WriteByte('\n')
	}
	b.WriteString("\n| cores, and RSS at the most |")
	for _, p := range phases {
		fmt.Fprintf(&b, " %s, %.0f s |", p.Name, p.To-p.From)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" --- |", len(phases)) + "\n")
	for _, who := range s.Whos {
		fmt.Fprintf(&b, "| %s |", who)
		for _, p := range phases {
			if u, ok := p.Uses[who]; ok {
				fmt.Fprintf(&b, " %.3f, %.0f MiB |", u.Cores, u.MiB)
			} else {
				b.WriteString(" – |")
			}
		}
		b.WriteByte('\n')
	}
	if len(s.Faults) > 0 {
		b.WriteString("\n| fault | at, for | writes refused, unanswered | the last of them | longest write |\n| --- | --- | --- | --- | --- |\n")
		for _, f := range s.Faults {
			last := "–"
			if f.Refused+f.Unanswered > 0 {
				last = fmt.Sprintf("%.1f s", f.Last)
			}
			fmt.Fprintf(&b, "| %s | %.0f s, %.1f s | %d, %d | %s | %.1f s |\n", f.What, f.From, f.Seconds, f.Refused, f.Unanswered, last, f.Longest)
		}
	}
	if len(s.Changes) > 0 {
		b.WriteString("\n| change of policies | times | written after | all replicas act after: least, middle, most |\n| --- | --- | --- | --- |\n")
		by := map[string][]Change{}
		for _, c := range s.Changes {
			by[c.What] = append(by[c.What], c)
		}
		for _, what := range slices.Sorted(maps.Keys(by)) {
			var acts []float64
			late, written := 0, 0.0
			for _, c := range by[what] {
				written = max(written, c.Written)
				if c.Acts < 0 {
					late++
					continue
				}
				acts = append(acts, c.Acts)
			}
			slices.Sort(acts)
			text := "–"
			if n := len(acts); n > 0 {
				text = fmt.Sprintf("%.2f, %.2f, %.2f s", acts[0], acts[n/2], acts[n-1])
			}
			if late > 0 {
				text += fmt.Sprintf("; %d not in time", late)
			}
			fmt.Fprintf(&b, "| %s | %d | %.2f s | %s |\n", what, len(by[what]), written, text)
		}
	}
	for _, a := range s.Audits {
		fmt.Fprintf(&b, "\naudit while it ran: %.1f s, %.1f s of processor, %.0f MiB at its peak, exit code %d, %d objects, %d would change\n", a.Seconds, a.CPU, a.MiB, a.Code, a.Objects, a.Changed)
	}
	b.WriteByte('\n')
	for _, c := range s.Checks {
		fmt.Fprintf(&b, "%s: %d checked, %d wrong, %d lost\n", c.What, c.Objects, c.Wrong, c.Lost)
	}
	for _, n := range s.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ms is a time in milliseconds, with digits as they are worth.
func ms(d time.Duration) string {
	switch v := float64(d) / float64(time.Millisecond); {
	case v == 0:
		return "–"
	case v < 10:
		return fmt.Sprintf("%.1f ms", v)
	default:
		return fmt.Sprintf("%.0f ms", math.Round(v))
	}
}
