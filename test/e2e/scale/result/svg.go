package result

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mapd-project/mapd/test/load"
)

// The picture has three panels over one axis of time.
const (
	width, left, right = 960.0, 84.0, 24.0
	top, panel, gap    = 92.0, 150.0, 44.0
)

// window is how many seconds of writes one point is about: 5, and more where that would be
// more points than can be told apart.
func (s *Summary) window() float64 { return 5 * max(1, math.Ceil(s.End/1000)) }

const style = `<style>
  .bg { fill: #ffffff } .panel { fill: #f6f8fa; stroke: #d0d7de } .grid { stroke: #d0d7de } .fault { stroke: #9a6700; stroke-dasharray: 3 3 }
  .a { stroke: #0969da } .b { stroke: #8250df } .c { stroke: #1a7f37 } .d { stroke: #9a6700 } .bad { fill: #cf222e }
  .a, .b, .c, .d { fill: none; stroke-width: 1.6 }
  text { fill: #1f2328; font: 13px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif }
  .t { font-size: 15px; font-weight: 600 } .s { font-size: 12px; fill: #59636e }
  @media (prefers-color-scheme: dark) {
    .bg { fill: #0d1117 } .panel { fill: #161b22; stroke: #30363d } .grid { stroke: #30363d } .fault { stroke: #d29922 }
    .a { stroke: #58a6ff } .b { stroke: #bc8cff } .c { stroke: #3fb950 } .d { stroke: #d29922 } .bad { fill: #ff7b72 }
    text { fill: #e6edf3 } .s { fill: #9da7b1 }
  }
</style>
`

// A point is a value at a time.
type point struct{ t, v float64 }

// SVG draws how long writes took, what processes used, and when faults were.
func (s *Summary) SVG() []byte {
	var b bytes.Buffer
	bottom := top + 3*panel + 2*gap
	height := bottom + 44 + 20*float64((len(s.Faults)+1)/2)
	r := s.Run
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" aria-labelledby="title desc">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<title id="title">A cluster of %d nodes and %d Pods with mapd</title>`+"\n", r.Nodes, r.Pods)
	checked, wrong, lost := s.Bad()
	fmt.Fprintf(&b, `<desc id="desc">Latency of creating Pods, processor and memory over %.0f seconds, without policies, with native ones, with mapd, and with faults. %d objects checked, %d wrong, %d lost.</desc>`+"\n",
		s.End, checked, wrong, lost)
	b.WriteString(style)
	fmt.Fprintf(&b, `<rect class="bg" width="%.0f" height="%.0f" rx="10"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text class="t" x="%.0f" y="30">%d nodes, %d Pods, %d policies, %d replicas of mapd; %d objects checked, %d wrong, %d lost</text>`+"\n",
		left, r.Nodes, r.Pods, r.Policies, r.Replicas, checked, wrong, lost)

	begin := 0.0
	if len(s.Phases) > 0 {
		begin = s.Phases[0].From
	}
	x := func(t float64) float64 { return left + (t-begin)/max(s.End-begin, 1)*(width-left-right) }

	for i := range 3 {
		fmt.Fprintf(&b, `<rect class="panel" x="%.0f" y="%.0f" width="%.0f" height="%.0f"/>`+"\n", left, top+float64(i)*(panel+gap), width-left-right, panel)
	}
	for _, p := range s.Phases {
		if p.Name == Between || p.Name == End {
			continue
		}
		fmt.Fprintf(&b, `<path class="grid" d="M%.1f %.0fV%.0f"/><text x="%.1f" y="%.0f">%s</text>`+"\n", x(p.From), top-22, bottom, x(p.From)+4, top-10, html.EscapeString(p.Name))
	}
	for i, f := range s.Faults {
		fmt.Fprintf(&b, `<path class="fault" d="M%.1f %.0fV%.0f"/><text class="s" x="%.1f" y="%.0f">%d</text>`+"\n", x(f.From), top, bottom, x(f.From)+2, top+12, i+1)
		column := float64(i % 2)
		fmt.Fprintf(&b, `<text class="s" x="%.0f" y="%.0f">%d %s</text>`+"\n", left+column*430, bottom+44+20*float64(i/2), i+1, html.EscapeString(f.What))
	}

	step := nice((s.End - begin) / 60 / 8)
	for minute := step; begin+60*minute < s.End; minute += step {
		fmt.Fprintf(&b, `<path class="grid" d="M%.1f %.0fv6"/><text class="s" x="%.1f" y="%.0f" text-anchor="middle">%g min</text>`+"\n",
			x(begin+60*minute), top-28, x(begin+60*minute), top-32, minute)
	}

	// Times of writes have a logarithmic axis, from 1 ms to 100 s.
	y0 := top + panel
	log := func(ms float64) float64 { return y0 - math.Log10(min(max(ms, 1), 1e5))/5*panel }
	for i, text := range []string{"1 ms", "10 ms", "100 ms", "1 s", "10 s"} {
		fmt.Fprintf(&b, `<path class="grid" d="M%.0f %.1fH%.0f"/><text class="s" x="%.0f" y="%.1f" text-anchor="end">%s</text>`+"\n",
			left, log(math.Pow10(i)), width-right, left-8, log(math.Pow10(i))+4, text)
	}
	p50, p99, refused := s.windows("Pod")
	line(&b, "b", x, log, p99)
	line(&b, "a", x, log, p50)
	for _, p := range refused {
		fmt.Fprintf(&b, `<circle class="bad" cx="%.1f" cy="%.1f" r="2"/>`+"\n", x(p.t), log(p.v))
	}
	legend(&b, top+panel+16, "creating a Pod:", "a", "p50", "b", "p99", "bad", "refused, or no answer")

	cpu, mem := s.series()
	for i, of := range []struct {
		series map[string][]point
		unit   string
	}{{cpu, " cores"}, {mem, " MiB"}} {
		y0 := top + float64(i+1)*(panel+gap) + panel
		most := 0.0
		for _, points := range of.series {
			for _, p := range points {
				most = max(most, p.v)
			}
		}
		most = nice(most)
		y := func(v float64) float64 { return y0 - v/most*panel }
		for _, part := range []float64{0, .5, 1} {
			fmt.Fprintf(&b, `<text class="s" x="%.0f" y="%.1f" text-anchor="end">%g%s</text>`+"\n", left-8, y(part*most)+4, part*most, of.unit)
		}
		for j, who := range []string{"API servers", "etcd", "mapd", "controllers, scheduler, KWOK"} {
			line(&b, string("dcab"[j]), x, y, of.series[who])
		}
		legend(&b, y0+16, "all processes of:", "a", "mapd", "d", "API servers", "c", "etcd", "b", "controllers, scheduler, KWOK")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// nice is the next number that is good for the end of an axis.
func nice(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5, 10} {
		if v <= m*unit {
			return m * unit
		}
	}
	return v
}

func line(b *bytes.Buffer, class string, x, y func(float64) float64, points []point) {
	if len(points) == 0 {
		return
	}
	fmt.Fprintf(b, `<path class="%s" d="`, class)
	for i, p := range points {
		fmt.Fprintf(b, "%c%.1f %.1f", "ML"[min(i, 1)], x(p.t), y(p.v))
	}
	b.WriteString("\"/>\n")
}

// legend writes words with a mark each: class and text, in turns.
func legend(b *bytes.Buffer, y float64, title string, marks ...string) {
	x := left
	fmt.Fprintf(b, `<text class="s" x="%.0f" y="%.0f">%s</text>`+"\n", x, y, title)
	x += 110
	for i := 0; i < len(marks); i += 2 {
		if marks[i] == "bad" {
			fmt.Fprintf(b, `<circle class="bad" cx="%.0f" cy="%.0f" r="3"/>`, x+8, y-4)
		} else {
			fmt.Fprintf(b, `<path class="%s" d="M%.0f %.0fh16"/>`, marks[i], x, y-4)
		}
		fmt.Fprintf(b, `<text class="s" x="%.0f" y="%.0f">%s</text>`+"\n", x+22, y, marks[i+1])
		x += 50 + 7*float64(len(marks[i+1]))
	}
}

// windows are p50 and p99 of accepted writes in each window, in milliseconds, and those that
// were not accepted.
func (s *Summary) windows(what string) (p50, p99, refused []point) {
	times := map[int][]time.Duration{}
	window := s.window()
	for _, l := range s.Writes {
		switch w := l.Write; {
		case w.What != what:
		case w.Code == 0 || w.refused():
			refused = append(refused, point{l.T, w.MS})
		default:
			i := int(l.T / window)
			times[i] = append(times[i], time.Duration(w.MS*float64(time.Millisecond)))
		}
	}
	for i := range int(s.End/window) + 1 {
		if all := times[i]; len(all) > 0 {
			sum := load.Summarize(all)
			at := (float64(i) + .5) * window
			p50 = append(p50, point{at, float64(sum.P50) / 1e6})
			p99 = append(p99, point{at, float64(sum.P99) / 1e6})
		}
	}
	return p50, p99, refused
}

// groupOf is what the picture calls a process; "" for those that it does not show.
func groupOf(who string) string {
	switch {
	case strings.HasPrefix(who, "kube-apiserver"):
		return "API servers"
	case strings.HasPrefix(who, "mapd"):
		return "mapd"
	case who == "etcd":
		return "etcd"
	case who == "this program", who == "audit":
		return ""
	}
	return "controllers, scheduler, KWOK"
}

// series are cores and MiB of groups of processes over time, each window one point.
func (s *Summary) series() (cpu, mem map[string][]point) {
	cpu, mem = map[string][]point{}, map[string][]point{}
	each := 2 * s.window()
	n := int(s.End/each) + 1
	byWho := map[string][]Line{}
	for _, l := range s.Uses {
		byWho[l.Use.Who] = append(byWho[l.Use.Who], l)
	}
	sums := map[string][][2]float64{}
	for _, who := range s.Whos {
		group := groupOf(who)
		if group == "" {
			continue
		}
		if sums[group] == nil {
			sums[group] = make([][2]float64, n)
		}
		most := make([]float64, n)
		all := byWho[who]
		for i, l := range all {
			at := int(l.T / each)
			most[at] = max(most[at], l.Use.MiB)
			if i > 0 && all[i-1].Use.PID == l.Use.PID {
				sums[group][at][0] += (l.Use.CPU - all[i-1].Use.CPU) / each
			}
		}
		for at, v := range most {
			sums[group][at][1] += v
		}
	}
	for group, all := range sums {
		for i, v := range all[:max(0, n-1)] { // the last one is cut off
			at := (float64(i) + .5) * each
			if len(s.Phases) > 0 && at < s.Phases[0].From {
				continue
			}
			cpu[group] = append(cpu[group], point{at, v[0]})
			mem[group] = append(mem[group], point{at, v[1]})
		}
	}
	for _, m := range []map[string][]point{cpu, mem} {
		for _, points := range m {
			slices.SortFunc(points, func(a, b point) int { return int(a.t - b.t) })
		}
	}
	return cpu, mem
}
