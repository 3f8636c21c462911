package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The Record of a stage says what it asked each source, and what that took.
func TestAsked(t *testing.T) {
	bad := errors.New("bad")
	c := &catalog{answer: func(_ context.Context, questions []Question) []Answer {
		how := map[string]Answer{
			"called": {Way: Called, Took: 3}, "slow": {Way: Called, Took: 5}, "bad": {Err: bad, Way: Called, Took: 1},
			"cached": {Way: Cached}, "shared": {Way: Shared, Took: 2}, "given": {}, "refused": {Err: bad},
		}
		out := make([]Answer, len(questions))
		for i, q := range questions {
			out[i] = how[q.Key]
		}
		return out
	}}
	a := newAdmission(t.Context(), New(Options{Resolver: c}), creates(widgetWith(nil)))
	a.enter(&Stage{}, nil)
	a.Ask([]Question{{"p", "cached"}, {"q", "slow"}, {"q", "bad"}, {"p", "shared"}, {"p", "cached"}})
	a.Ask([]Question{{"q", "called"}, {"r", "given"}, {"r", "refused"}})
	want := []Asked{
		{Source: "p", Keys: 2, Cached: 1, Shared: 1, Time: 2},
		{Source: "q", Calls: 2, Keys: 3, Failed: 1, Time: 8},
		{Source: "r", Keys: 2, Failed: 1},
	}
	if diff := cmp.Diff(want, a.sources); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	a.enter(&Stage{}, nil)
	if a.sources != nil {
		t.Errorf("the next stage has asked %v", a.sources)
	}
	for s, want := range map[Asked]string{
		{Source: "p", Keys: 1}: "p: 1 key",
		{Source: "p", Calls: 1, Keys: 2, Cached: 1, Shared: 3, Failed: 4, Time: 1234567}:   "p: 2 keys, 1 call, 1 cached, 3 shared, 4 failed, 1.23ms",
		{Source: "p", Calls: 2, Keys: 2, Failed: 2, Time: 2*time.Second + time.Nanosecond}: "p: 2 keys, 2 calls, 2 failed, 2s",
	} {
		if got := s.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// What was asked is in the Decision, also if no answer can be used.
func TestAskedInDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, tt := range map[string]struct {
			answer func(context.Context, []Question) []Answer
			want   Asked
		}{
			"called": {func(context.Context, []Question) []Answer {
				time.Sleep(time.Second)
				return []Answer{{Way: Called, Took: time.Second}, {Way: Called, Err: errors.New("no")}}
			}, Asked{Source: "a", Calls: 1, Keys: 2, Failed: 1, Time: time.Second}},
			"late": {func(ctx context.Context, _ []Question) []Answer {
				<-ctx.Done()
				return []Answer{{Way: Called, Took: maxAsking}, {Way: Cached}}
			}, Asked{Source: "a", Calls: 1, Keys: 2, Cached: 1, Failed: 2, Time: maxAsking}},
			"panic": {func(context.Context, []Question) []Answer {
				time.Sleep(time.Second)
				panic("oops")
			}, Asked{Source: "a", Keys: 2, Failed: 2, Time: time.Second}},
		} {
			d := asks(t, Options{Resolver: &catalog{answer: tt.answer}}, creates(widgetWith(nil)), "a:x", "a:y")
			if diff := cmp.Diff([]Asked{tt.want}, d.Asked()); diff != "" || d.Status == nil {
				t.Errorf("%s: -want +got\n%s", name, diff)
			}
		}
	})
	if d := asks(t, Options{}, creates(widgetWith(nil))); fmt.Sprint(len(d.Stages), d.Asked() == nil, d.Stages[0].Asked == nil) != "1 true true" {
		t.Errorf("a stage that asks nothing has asked %v", d.Asked())
	}
}
