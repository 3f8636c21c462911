package breaker

import "time"

// parts is how many parts a window has. The oldest part is dropped as a whole, so a
// window covers between its length less one part and its length.
const parts = 12

// Counts are evaluations: all of them, and the bad ones by what was wrong. An evaluation
// that failed does not count as slow, too.
type Counts struct{ Evaluated, Failed, Slow int }

// Bad returns how many evaluations failed or were slow.
func (c Counts) Bad() int { return c.Failed + c.Slow }

func (c *Counts) add(o Counts) {
	c.Evaluated += o.Evaluated
	c.Failed += o.Failed
	c.Slow += o.Slow
}

// window counts what happened within a length of time. The zero value has to be started.
type window struct {
	start time.Time
	part  time.Duration // how long a part lasts
	last  int64         // number of the newest part since start
	ring  [parts]Counts // by number modulo parts
}

func startWindow(length time.Duration, now time.Time) window {
	return window{start: now, part: max(length/parts, 1)}
}

// add counts c and returns the sum of the window.
func (w *window) add(c Counts, now time.Time) (sum Counts) {
	n := max(int64(now.Sub(w.start)/w.part), w.last)
	if n-w.last >= parts {
		w.ring = [parts]Counts{}
	} else {
		for i := w.last + 1; i <= n; i++ {
			w.ring[i%parts] = Counts{}
		}
	}
	w.last = n
	w.ring[n%parts].add(c)
	for i := range w.ring {
		sum.add(w.ring[i])
	}
	return sum
}
