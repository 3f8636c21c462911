package breaker

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/test/hammer"
)

// percent returns the limits of an annotation.
func percent(t *testing.T, annotation string) api.Breaker {
	t.Helper()
	r, faults := api.RolloutOf(map[string]string{api.BreakerAnnotation: annotation})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return *r.Breaker
}

// Evaluations that are bad, few of them, long ago, or spread out.
func TestTrips(t *testing.T) {
	good, failed, slow := Counts{Evaluated: 1}, Counts{Evaluated: 1, Failed: 1}, Counts{Evaluated: 1, Slow: 1}
	type some struct {
		n     int
		c     Counts
		every time.Duration
	}
	for _, tt := range []struct {
		name, limits string
		counted      []some
		want         string // empty: it does not trip
	}{
		{"all fail", "errors=5%", []some{{LeastEvaluations - 1, failed, 0}}, ""},
		{"enough fail", "errors=5%", []some{{LeastEvaluations, failed, 0}}, "20 of 20 evaluations within 5m failed"},
		{"too few bad", "errors=5%", []some{{leastBad - 1, failed, 0}, {18, good, 0}}, ""},
		{"just the share", "errors=5%", []some{{57, good, 0}, {2, failed, 0}, {1, failed, 0}}, "3 of 60 evaluations within 5m failed"},
		{"below the share", "errors=5%", []some{{58, good, 0}, {3, failed, 0}}, ""},
		{"all of it", "errors=100%", []some{{1, good, 0}, {1000, failed, 0}}, ""},
		{"slow and failing", "errors=10%,slow=50ms,window=1h", []some{{40, good, 0}, {2, failed, 0}, {3, slow, 0}},
			"5 of 45 evaluations within 1h failed (2) or took longer than 50ms (3)"},
		{"slow", "slow=1.5s,window=90s", []some{{40, good, 0}, {3, slow, 0}}, "3 of 43 evaluations within 1m30s failed (0) or took longer than 1.5s (3)"},
		{"within the window", "errors=50%,window=60s", []some{{20, failed, 2 * time.Second}}, "20 of 20 evaluations within 1m failed"},
		{"longer than the window", "errors=50%,window=60s", []some{{1000, failed, 4 * time.Second}}, ""},
		{"what was good long ago", "errors=50%,window=60s", []some{{1000, good, 0}, {1, good, time.Hour}, {19, failed, 0}}, "19 of 20 evaluations within 1m failed"},
		{"what was bad long ago", "errors=50%,window=60s", []some{{19, failed, 0}, {1, good, time.Minute}, {19, good, 0}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := New(percent(t, tt.limits), "d")
				got := ""
				for _, s := range tt.counted {
					for range s.n {
						time.Sleep(s.every)
						if trip := b.Count(s.c); trip != nil {
							got = trip.Reason
							if own, _ := b.Own(); own != trip || !trip.Time.Equal(time.Now().Truncate(time.Second)) || trip.Digest != "d" {
								t.Errorf("trip %+v, own %+v", trip, own)
							}
						}
					}
				}
				if got != tt.want {
					t.Errorf("tripped: %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// A Breaker that is open does not count, and one that is reset has forgotten everything.
func TestReset(t *testing.T) {
	b := New(percent(t, "errors=50%"), "d")
	bad := func(n int) (trips int) {
		for range n {
			if b.Count(Counts{Evaluated: 1, Failed: 1}) != nil {
				trips++
			}
		}
		return trips
	}
	if got := bad(100); got != 1 {
		t.Errorf("tripped %d times", got)
	}
	b.Open(true)
	if own, _ := b.Own(); own != nil || bad(100) != 0 {
		t.Errorf("a stored trip is its own: %+v", own)
	}
	b.Reset()
	if got := bad(LeastEvaluations - 1); got != 0 {
		t.Error("it has not forgotten what it counted before")
	}
	if got := bad(1); got != 1 {
		t.Error("it does not count again")
	}
}

// What an evaluation is: all steps of a policy by one binding and parameter in a round.
func TestCountSteps(t *testing.T) {
	err := errors.New("no")
	step := func(policy, binding, param string, round int, outcome engine.Outcome, took time.Duration) engine.Step {
		s := engine.Step{Policy: policy, Binding: binding, Param: param, Round: round, Outcome: outcome, Duration: took}
		if outcome == engine.Failed {
			s.Err = err
		}
		return s
	}
	const ms = time.Millisecond
	conditions := step("p", "b", "", 1, engine.Unchanged, 30*ms)
	conditions.ConditionTime = 30 * ms
	for _, tt := range []struct {
		name        string
		steps       []engine.Step
		interrupted bool
		want        Counts
	}{
		{"another policy", []engine.Step{step("q", "b", "", 1, engine.Failed, 0)}, false, Counts{}},
		{"two mutations", []engine.Step{step("p", "b", "", 1, engine.Changed, ms), step("p", "b", "", 1, engine.Failed, ms)}, false, Counts{Evaluated: 1, Failed: 1}},
		{"two slow halves", []engine.Step{step("p", "b", "", 1, engine.Changed, 30*ms), step("p", "b", "", 1, engine.Changed, 30*ms)}, false, Counts{Evaluated: 1, Slow: 1}},
		{"with its conditions", []engine.Step{conditions}, false, Counts{Evaluated: 1, Slow: 1}},
		{"two bindings, parameters and rounds", []engine.Step{
			step("p", "a", "", 1, engine.Changed, 0), step("p", "b", "x", 1, engine.Unchanged, 0), step("p", "b", "y", 1, engine.Failed, 0),
			step("p", "b", "y", 2, engine.Changed, 0),
		}, false, Counts{Evaluated: 4, Failed: 1}},
		{"left out by its conditions", []engine.Step{step("p", "b", "", 1, engine.Skipped, time.Second)}, false, Counts{}},
		{"a failure that is slow", []engine.Step{step("p", "b", "", 1, engine.Failed, time.Second)}, false, Counts{Evaluated: 1, Failed: 1}},
		{"interrupted early", []engine.Step{step("p", "b", "", 1, engine.Failed, ms)}, true, Counts{Evaluated: 1}},
		{"interrupted late", []engine.Step{step("p", "b", "", 1, engine.Failed, time.Second)}, true, Counts{Evaluated: 1, Slow: 1}},
		{"interrupted after a failure", []engine.Step{step("p", "b", "", 1, engine.Failed, ms), step("q", "b", "", 1, engine.Failed, ms)}, true, Counts{Evaluated: 1, Failed: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := New(percent(t, "slow=50ms"), "d")
			Set{"p": b}.Count(tt.steps, !tt.interrupted)
			if got := b.window.add(Counts{}, time.Now()); got != tt.want {
				t.Errorf("counted %+v, want %+v", got, tt.want)
			}
		})
	}
}

// A flood of requests takes no memory: neither good ones, nor bad ones that are too few,
// nor those after the trip, of which there is one.
func TestCountAllocates(t *testing.T) {
	for name, tt := range map[string]struct {
		limits string
		bad    engine.Step
		trips  bool
	}{
		"good":    {"slow=50ms", engine.Step{Policy: "p", Outcome: engine.Changed}, false},
		"failing": {"errors=1%", engine.Step{Policy: "p", Outcome: engine.Failed, Err: errors.New("no")}, true},
		"slow":    {"slow=50ms", engine.Step{Policy: "p", Outcome: engine.Changed, Duration: time.Minute}, true},
		"too few": {"errors=60%,window=1h", engine.Step{Policy: "p", Outcome: engine.Failed, Err: errors.New("no")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := New(percent(t, tt.limits), "d")
			set, trips := Set{"p": b}, 0
			steps := []engine.Step{{Policy: "o", Outcome: engine.Changed}, {Policy: "p", Outcome: engine.Changed, Binding: "good"}, tt.bad}
			count := func() { trips += len(set.Count(steps, true)) }
			for range 1000 {
				count()
			}
			if n := hammer.Allocs(t, count); n != 0 {
				t.Errorf("%v allocations", n)
			}
			if want := map[bool]int{true: 1}[tt.trips]; trips != want {
				t.Errorf("%d trips, want %d", trips, want)
			}
		})
	}
}

// Many count at once; exactly one of them trips it.
func TestHammerBreaker(t *testing.T) {
	b := New(percent(t, "errors=1%"), "d")
	trips := make(chan *Trip, 100)
	hammer.Run(8, 50, func(int, int) {
		if trip := b.Count(Counts{Evaluated: 1, Failed: 1}); trip != nil {
			trips <- trip
		}
	})
	if len(trips) != 1 {
		t.Errorf("tripped %d times", len(trips))
	}
}

// The digest of a policy never changes between releases, nor with what does not matter.
func TestDigest(t *testing.T) {
	policy := func(annotations, spec map[string]any) map[string]any {
		return map[string]any{
			"metadata": map[string]any{"name": "p", "generation": int64(3), "annotations": annotations}, "spec": spec, "status": map[string]any{"x": "y"},
		}
	}
	spec := map[string]any{"failurePolicy": "Fail", "variables": []any{map[string]any{"name": "a", "expression": "1 < 2"}}}
	first := DigestOf(policy(map[string]any{api.BreakerAnnotation: "errors=5%", "other": "1"}, spec))
	if want := "sha256:0fdd3076fa6d20b3b93e182cd86b5323d25ac02b13030a4d739254ffd1248fb2"; first != want {
		t.Errorf("digest %s, want %s", first, want)
	}
	if again := DigestOf(policy(map[string]any{api.BreakerAnnotation: "errors=5%", "other": "2"}, spec)); again != first {
		t.Error("another annotation counts")
	}
	for name, other := range map[string]map[string]any{
		"limits": policy(map[string]any{api.BreakerAnnotation: "errors=6%"}, spec),
		"mode":   policy(map[string]any{api.BreakerAnnotation: "errors=5%", api.ModeAnnotation: "enforce"}, spec),
		"spec":   policy(map[string]any{api.BreakerAnnotation: "errors=5%"}, map[string]any{"failurePolicy": "Ignore"}),
	} {
		if DigestOf(other) == first {
			t.Errorf("the %s does not count", name)
		}
	}
}

// Whatever is in a status, a Trip is read or there is none.
func TestTripOf(t *testing.T) {
	trip := &Trip{Digest: "d", Reason: "r", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Replica: "mapd-1"}
	for _, tt := range []struct {
		status any
		want   string
	}{
		{nil, "<nil>"},
		{"x", "<nil>"},
		{map[string]any{"breaker": []any{}}, "<nil>"},
		{map[string]any{"breaker": map[string]any{"digest": 5, "time": "yesterday"}}, fmt.Sprint(&Trip{})},
		{map[string]any{"breaker": trip.Object()}, fmt.Sprint(trip)},
	} {
		if got := fmt.Sprint(TripOf(&unstructured.Unstructured{Object: map[string]any{"status": tt.status}})); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.status, got, tt.want)
		}
	}
}
