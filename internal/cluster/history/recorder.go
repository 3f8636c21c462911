package history

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// maxPairs bounds the policies and bindings that are counted; it is more than a cluster can
// sensibly have.
const maxPairs = 20_000

// Pair is a policy and one of its bindings. Binding is empty for Gatekeeper's mutators, whose
// Policy has the form Assign/name, and for errors of the policy itself.
type Pair struct {
	Policy  string `json:"policy"`
	Binding string `json:"binding,omitempty"`
}

// Counts say what happened to the requests that a policy matched. A request counts once,
// regardless of the number of mutations, parameters and rounds.
type Counts struct {
	// Seen counts requests that the policy and its conditions matched.
	Seen uint64 `json:"seen,omitempty"`
	// Would counts requests that a policy in shadow or warn would have changed.
	Would uint64 `json:"would,omitempty"`
	// Changed counts requests that an enforced policy changed.
	Changed uint64 `json:"changed,omitempty"`
	// Failed counts requests on which the policy failed, in any mode.
	Failed uint64 `json:"failed,omitempty"`
	// LeftOut counts requests that the policy and its binding matched, but that are outside of
	// the binding's share. The conditions were not evaluated, and Seen does not count these
	// requests.
	LeftOut uint64 `json:"leftOut,omitempty"`
	// Excepted counts requests that an exception excluded in the same way.
	Excepted uint64 `json:"excepted,omitempty"`
	// Time is the total time of evaluations.
	Time time.Duration `json:"nanoseconds,omitempty"`
}

// counted identifies a counter: a policy and a binding, in one mode.
type counted struct {
	Pair
	mode api.Mode
}

// Recorder records what policies do on one replica. It is safe for concurrent use.
type Recorder struct {
	replica   string
	since     time.Time
	history   *history
	samples   samples
	feed      *Feed // nil if nobody reads entries
	delivered delivered
	// kept is the namespace of the ConfigMaps that store entries; empty if none do.
	kept string

	mu     sync.RWMutex
	pairs  map[counted]*counter
	pruned atomic.Uint64 // number of calls of Prune

	tallies sync.Pool // of *tally
}

var _ webhook.Recorder = (*Recorder)(nil)

// New returns an empty Recorder for a replica.
func New(replica string) *Recorder {
	return &Recorder{replica: replica, since: time.Now(), history: newHistory(historyBytes), samples: samples{full: map[Pair]time.Time{}}, pairs: map[counted]*counter{}}
}

// counter counts for one pair.
type counter struct {
	seen, would, changed, failed, leftOut, excepted atomic.Uint64
	time                                            atomic.Int64
	example                                         example
}

// tally has the results of one request for each pair. It is reused for later requests, and caches
// the counters of the pairs that it has seen, so that a lookup is one map access.
type tally struct {
	of     map[counted]*tallied
	met    []*tallied // pairs of this request
	number uint64     // of this request, to recognise old results
	pruned uint64
}

// tallied is the result of a request for a pair.
type tallied struct {
	*counter
	number                                          uint64 // of the request to which the other fields belong
	seen, would, changed, failed, leftOut, excepted bool
	time                                            time.Duration
	step                                            *engine.Step // the step that changed the object, or would have
}

// Record implements webhook.Recorder.
func (l *Recorder) Record(req *policy.Request, d *engine.Decision, _ time.Duration) {
	if len(d.Stages) == 0 && len(d.LeftOut) == 0 {
		return
	}
	t := l.tally()
	for i := range d.Stages {
		r := &d.Stages[i]
		t.steps(l, r.Steps, r.Stage.Mode)
		for k := range r.Shadows {
			s := &r.Shadows[k]
			t.shadow(l, s)
			if s.Changed() {
				l.samples.add(req, s)
			}
		}
	}
	for i := range d.LeftOut {
		o := &d.LeftOut[i]
		a := t.find(l, counted{Pair{o.Policy, o.Binding}, o.Mode})
		if o.Exception != nil {
			a.excepted = true
		} else {
			a.leftOut = true
		}
	}
	t.end(req)
	l.tallies.Put(t)
	if d.Changed && d.Status == nil && !req.DryRun {
		l.history.add(req, d.Steps, l.feed)
	}
}

func (l *Recorder) tally() *tally {
	t, _ := l.tallies.Get().(*tally)
	if t == nil {
		t = &tally{of: map[counted]*tallied{}}
	}
	t.number++
	if now := l.pruned.Load(); t.pruned != now {
		t.pruned = now
		clear(t.of)
	}
	return t
}

// steps adds the steps of a stage that runs in a mode.
func (t *tally) steps(l *Recorder, steps []engine.Step, mode api.Mode) {
	for i := range steps {
		s := &steps[i]
		a := t.find(l, counted{Pair{s.Policy, s.Binding}, mode})
		a.time += s.Duration + s.ConditionTime
		switch s.Outcome {
		case engine.Unchanged:
			a.seen = true
		case engine.Changed:
			a.seen = true
			if a.step == nil {
				a.step = s
			}
			if mode == api.Enforce {
				a.changed = true
			} else {
				a.would = true
			}
		case engine.Failed:
			a.seen, a.failed = true, true
		}
	}
}

// shadow adds the steps of an invocation that was not enforced.
func (t *tally) shadow(l *Recorder, s *engine.Shadow) {
	a := t.find(l, counted{Pair{s.Policy, s.Binding}, s.Mode})
	for i := range s.Steps {
		step := &s.Steps[i]
		a.time += step.Duration + step.ConditionTime
		a.seen = a.seen || step.Outcome != engine.Skipped
		if s.Changed() && a.step == nil && step.Outcome == engine.Changed {
			a.step = step
		}
	}
	if s.Changed() {
		a.seen, a.would = true, true
	}
	if s.Err() != nil {
		a.seen, a.failed = true, true
	}
}

// find returns the result for a pair in the present request.
func (t *tally) find(l *Recorder, p counted) *tallied {
	a := t.of[p]
	if a == nil {
		a = &tallied{counter: l.counter(p)}
		t.of[p] = a
	}
	if a.number != t.number {
		*a = tallied{counter: a.counter, number: t.number}
		t.met = append(t.met, a)
	}
	return a
}

// end adds the results to the counters, and drops all references to the request.
func (t *tally) end(req *policy.Request) {
	for i, a := range t.met {
		count := func(n *atomic.Uint64, yes bool) {
			if yes {
				n.Add(1)
			}
		}
		count(&a.counter.seen, a.seen)
		count(&a.counter.would, a.would)
		count(&a.counter.changed, a.changed)
		count(&a.counter.failed, a.failed)
		count(&a.counter.leftOut, a.leftOut)
		count(&a.counter.excepted, a.excepted)
		a.counter.time.Add(int64(a.time))
		if a.step != nil {
			a.example.set(req, a.step)
		}
		a.step, t.met[i] = nil, nil
	}
	t.met = t.met[:0]
}

// counter returns the counter of a pair. If there are maxPairs already, it returns a counter that
// nobody reads.
func (l *Recorder) counter(p counted) *counter {
	l.mu.RLock()
	c := l.pairs[p]
	l.mu.RUnlock()
	if c != nil {
		return c
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c = l.pairs[p]; c == nil {
		c = &counter{}
		if len(l.pairs) < maxPairs {
			l.pairs[p] = c
		}
	}
	return c
}

// Prune drops the counts of policies and bindings for which keep returns false. As with
// webhook.Metrics, a running request may still add to them; the next call drops that.
func (l *Recorder) Prune(keep func(policy, binding string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pruned.Add(1)
	for p := range l.pairs {
		if !keep(p.Policy, p.Binding) {
			delete(l.pairs, p)
		}
	}
	l.samples.prune(keep)
}

// Counted has the counts of a pair in a mode, with the last example.
type Counted struct {
	Pair
	// Mode is empty for sums over all modes, and for counts of replicas of earlier releases of
	// mapd.
	Mode string `json:"mode,omitempty"`
	Counts
	Last *Example `json:"last,omitempty"`
}

// Add adds the counts of another replica. The newer example is kept.
func (c *Counted) Add(d *Counted) {
	c.Seen += d.Seen
	c.Would += d.Would
	c.Changed += d.Changed
	c.Failed += d.Failed
	c.LeftOut += d.LeftOut
	c.Excepted += d.Excepted
	c.Time += d.Time
	if d.Last != nil && (c.Last == nil || d.Last.Time.After(c.Last.Time)) {
		c.Last = d.Last
	}
}

// Since returns the difference to before. A count that is smaller than before was reset, and is
// returned as it is.
func (c Counts) Since(before Counts) Counts {
	if c.Seen < before.Seen || c.Would < before.Would || c.Changed < before.Changed || c.Failed < before.Failed || c.LeftOut < before.LeftOut || c.Excepted < before.Excepted || c.Time < before.Time {
		return c
	}
	return Counts{c.Seen - before.Seen, c.Would - before.Would, c.Changed - before.Changed, c.Failed - before.Failed, c.LeftOut - before.LeftOut, c.Excepted - before.Excepted, c.Time - before.Time}
}

// Counts returns the counts of all pairs, separately for each mode, sorted.
func (l *Recorder) Counts() []Counted {
	l.mu.RLock()
	out := make([]Counted, 0, len(l.pairs))
	for p, c := range l.pairs {
		out = append(out, Counted{p.Pair, p.mode.String(), Counts{
			Seen: c.seen.Load(), Would: c.would.Load(), Changed: c.changed.Load(), Failed: c.failed.Load(), LeftOut: c.leftOut.Load(), Excepted: c.excepted.Load(), Time: time.Duration(c.time.Load()),
		}, c.example.get()})
	}
	l.mu.RUnlock()
	slices.SortFunc(out, func(a, b Counted) int { return cmp.Or(a.Compare(b.Pair), cmp.Compare(a.Mode, b.Mode)) })
	return out
}

// Totals returns the sums over all modes for each pair, sorted, without LeftOut and Excepted.
func (l *Recorder) Totals() []Counted {
	var out []Counted
	for _, c := range l.Counts() {
		c.Mode, c.LeftOut, c.Excepted = "", 0, 0
		if n := len(out); n > 0 && out[n-1].Pair == c.Pair {
			out[n-1].Add(&c)
		} else if c.Counts != (Counts{}) {
			out = append(out, c)
		}
	}
	return out
}

// Compare sorts pairs by policy and binding.
func (p Pair) Compare(q Pair) int {
	return cmp.Or(cmp.Compare(p.Policy, q.Policy), cmp.Compare(p.Binding, q.Binding))
}
