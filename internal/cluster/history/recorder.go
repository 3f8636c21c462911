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

// maxPairs bounds how many policies and bindings are counted. More than a cluster can
// sensibly have are not.
const maxPairs = 20_000

// Pair is a policy and one of its bindings. Binding is empty if the policy itself is at
// fault and for Gatekeeper's mutators, whose Policy is such as Assign/name.
type Pair struct {
	Policy  string `json:"policy"`
	Binding string `json:"binding,omitempty"`
}

// Counts say what became of the requests that a policy matched. A request counts once,
// however many mutations, parameters and rounds there were.
type Counts struct {
	// Seen are all requests that the policy and its conditions matched.
	Seen uint64 `json:"seen,omitempty"`
	// Would are those that a policy in shadow or warn would have changed.
	Would uint64 `json:"would,omitempty"`
	// Changed are those that an enforced policy changed.
	Changed uint64 `json:"changed,omitempty"`
	// Failed are those on which the policy failed, in any mode.
	Failed uint64 `json:"failed,omitempty"`
	// LeftOut are those that the policy by its binding matched and the binding's share left
	// out, so that its conditions were not asked. Seen does not count them.
	LeftOut uint64 `json:"leftOut,omitempty"`
	// Excepted are those that an exception left out in the same way.
	Excepted uint64 `json:"excepted,omitempty"`
	// Time is what evaluating took in all.
	Time time.Duration `json:"nanoseconds,omitempty"`
}

// counted is whose requests are counted together: a policy by a binding, in one mode.
type counted struct {
	Pair
	mode api.Mode
}

// Recorder is the memory of one replica. It is safe for concurrent use.
type Recorder struct {
	replica   string
	since     time.Time
	history   *history
	samples   samples
	feed      *Feed // nil: nobody takes entries
	delivered delivered
	// kept is the namespace in whose ConfigMaps entries are stored, if they are.
	kept string

	mu     sync.RWMutex
	pairs  map[counted]*counter
	pruned atomic.Uint64 // how often

	tallies sync.Pool // of *tally
}

var _ webhook.Recorder = (*Recorder)(nil)

// New returns the empty Recorder of a replica.
func New(replica string) *Recorder {
	return &Recorder{replica: replica, since: time.Now(), history: newHistory(historyBytes), samples: samples{full: map[Pair]time.Time{}}, pairs: map[counted]*counter{}}
}

// counter counts for one pair.
type counter struct {
	seen, would, changed, failed, leftOut, excepted atomic.Uint64
	time                                            atomic.Int64
	example                                         example
}

// tally is what became of one request, for each pair. It is used for one request after
// the other, and finds the counters of the pairs that it has met before by one look.
type tally struct {
	of     map[counted]*tallied
	met    []*tallied // of this request
	number uint64     // of this request
	pruned uint64
}

// tallied is what a pair made of a request.
type tallied struct {
	*counter
	number                                          uint64 // of the request that this is about
	seen, would, changed, failed, leftOut, excepted bool
	time                                            time.Duration
	step                                            *engine.Step // that changed or would change the object
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

// steps adds steps of one Record. enforced says that they counted.
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

// shadow adds what an invocation that is not enforced would have done.
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

// find returns what the pair has made of this request so far.
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

// end counts, and drops everything that belongs to the request.
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

// counter returns the counter of a pair. Beyond maxPairs it is one that nobody reads.
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

// Prune forgets the counts of the policies and bindings for which keep returns false. As
// with webhook.Metrics, a request under way may count something more, which the next
// call forgets.
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

// Counted are the counts of a pair in a mode, with the last example of that mode.
type Counted struct {
	Pair
	// Mode is empty if these are the sums of all modes, or if a replica of an earlier release
	// of mapd has counted.
	Mode string `json:"mode,omitempty"`
	Counts
	Last *Example `json:"last,omitempty"`
}

// Add adds what another replica has counted. The newer example stays.
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

// Since returns what was counted after before. A count that is less began again.
func (c Counts) Since(before Counts) Counts {
	if c.Seen < before.Seen || c.Would < before.Would || c.Changed < before.Changed || c.Failed < before.Failed || c.LeftOut < before.LeftOut || c.Excepted < before.Excepted || c.Time < before.Time {
		return c
	}
	return Counts{c.Seen - before.Seen, c.Would - before.Would, c.Changed - before.Changed, c.Failed - before.Failed, c.LeftOut - before.LeftOut, c.Excepted - before.Excepted, c.Time - before.Time}
}

// Counts returns those of all pairs, those of each mode apart, sorted.
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

// Totals returns the sums of all modes for each pair, sorted, without what shares and exceptions left out.
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
