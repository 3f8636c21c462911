package breaker

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
)

const (
	// LeastEvaluations is the minimum of evaluations in a window, and leastBad the minimum of bad
	// ones, for a Breaker to trip: a few requests say little about a policy.
	LeastEvaluations = 20
	leastBad         = 3
)

// Breaker counts the evaluations of one policy on this replica until it trips. It is
// safe for concurrent use.
type Breaker struct {
	limits api.Breaker
	digest string
	// open is set while the policy is not enforced. Nothing is counted then.
	open atomic.Bool

	mu      sync.Mutex
	window  window
	trip    *Trip  // nil if this replica's own count did not trip it
	version string // version of the policy whose status has the Trip; "" until it is written
}

// New returns a Breaker for the version of a policy that has a digest.
func New(limits api.Breaker, digest string) *Breaker {
	return &Breaker{limits: limits, digest: digest, window: startWindow(limits.Window, time.Now())}
}

// Digest returns the digest of the version of the policy that the Breaker is for.
func (b *Breaker) Digest() string { return b.digest }

// Count counts evaluations, and returns the Trip if they make the Breaker trip, else nil.
func (b *Breaker) Count(c Counts) *Trip {
	if b.open.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open.Load() {
		return nil
	}
	now := time.Now()
	sum := b.window.add(c, now)
	if sum.Evaluated < LeastEvaluations || sum.Bad() < leastBad || int64(sum.Bad())*int64(api.Whole) < int64(b.limits.Errors)*int64(sum.Evaluated) {
		return nil
	}
	b.trip = &Trip{Digest: b.digest, Reason: b.reason(sum), Time: now.UTC().Truncate(time.Second)}
	b.open.Store(true)
	return b.trip
}

// reason returns the reason why the Breaker trips.
func (b *Breaker) reason(sum Counts) string {
	bad := "failed"
	if b.limits.Slow > 0 {
		bad = fmt.Sprintf("failed (%d) or took longer than %s (%d)", sum.Failed, short(b.limits.Slow), sum.Slow)
	}
	return fmt.Sprintf("%d of %d evaluations within %s %s", sum.Bad(), sum.Evaluated, short(b.limits.Window), bad)
}

// short formats d without zero units: 5m instead of 5m0s.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Own returns the Trip of this replica's own count, nil if there is none, and the version
// of the policy whose status has it, empty until it is written.
func (b *Breaker) Own() (_ *Trip, version string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.trip, b.version
}

// Written records the version of the policy whose status has this replica's Trip.
func (b *Breaker) Written(version string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.version = version
}

// Open stops counting, because the policy is not enforced. stored: the policy's status has the
// Trip, so it does not have to be written any more.
func (b *Breaker) Open(stored bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open.Store(true)
	if stored {
		b.trip, b.version = nil, ""
	}
}

// Reset starts to count again, from zero.
func (b *Breaker) Reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trip, b.version, b.window = nil, "", startWindow(b.limits.Window, time.Now())
	b.open.Store(false)
}

// Set are the Breakers of the policies of one engine, by the policy's name.
type Set map[string]*Breaker

// Count counts the enforced evaluations of a request. An evaluation is what one binding
// and one parameter made of the request in one round, once the policy's conditions held.
// finished is false for a request that ended for want of time or memory, or because its
// client was gone: the error of the step that this interrupted says nothing of the policy.
// Count returns the Breakers that trip, by policy; nil if there are none.
func (s Set) Count(steps []engine.Step, finished bool) (tripped map[string]*Trip) {
	for i := 0; i < len(steps); {
		first := &steps[i]
		b := s[first.Policy]
		var c Counts
		var took time.Duration
		for ; i < len(steps) && sameEvaluation(first, &steps[i]); i++ {
			step := &steps[i]
			took += step.Duration + step.ConditionTime
			if step.Outcome != engine.Skipped {
				c.Evaluated = 1
			}
			if step.Outcome == engine.Failed && (finished || i < len(steps)-1) {
				c.Failed = 1
			}
		}
		if b == nil || c.Evaluated == 0 {
			continue
		}
		if c.Failed == 0 && b.limits.Slow > 0 && took > b.limits.Slow {
			c.Slow = 1
		}
		if trip := b.Count(c); trip != nil {
			if tripped == nil {
				tripped = map[string]*Trip{}
			}
			tripped[first.Policy] = trip
		}
	}
	return tripped
}

func sameEvaluation(a, b *engine.Step) bool {
	return a == b || a.Policy == b.Policy && a.Binding == b.Binding && a.Param == b.Param && a.Round == b.Round
}
