package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Whoever evaluates for long enters the lane, waits there for its turn or for the end
// of its time, and lets the next one in after a while.
func TestLane(t *testing.T) {
	l := make(lane, 1)
	first, second := turn{lane: l}, turn{lane: l}
	yield := func(of *turn, ctx context.Context, n int) (err error) {
		for range n {
			if err = of.Yield(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	if err := yield(&first, t.Context(), freeYields); err != nil || len(l) != 0 {
		t.Fatalf("a short evaluation: %v, %d in the lane", err, len(l))
	}
	if err := yield(&first, t.Context(), 1); err != nil || len(l) != 1 || !first.inside {
		t.Fatalf("a long evaluation: %v, %d in the lane", err, len(l))
	}
	over, cancel := context.WithCancelCause(t.Context())
	noTime := errors.New("no more time")
	cancel(noTime)
	if err := yield(&second, over, freeYields+1); !errors.Is(err, noTime) || second.inside {
		t.Fatalf("waiting without time: %v", err)
	}

	second = turn{lane: l, yields: freeYields}
	done := make(chan error)
	// The first one leaves and enters again behind the second, which leaves at last.
	go func() {
		err := yield(&second, t.Context(), 1)
		second.leave()
		done <- err
	}()
	for range 2 * laneYields {
		if err := first.Yield(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	first.leave()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(l) != 0 || first.inside || second.inside {
		t.Errorf("%d are still in the lane", len(l))
	}
	first.leave()
}

// An evaluation that keeps its place is seen from outside, until it leaves.
func TestLongestTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := turn{lane: make(lane, 1), yields: freeYields}
		if err := first.Yield(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got := LongestTurn(); got < time.Minute {
			t.Errorf("%v after a minute", got)
		}
		for range laneYields + 1 { // it goes to the end of the line
			if err := first.Yield(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := LongestTurn(); got >= time.Minute {
			t.Errorf("%v after a new turn", got)
		}
		first.leave()
		if len(held.since) != 0 {
			t.Errorf("%d places are still held", len(held.since))
		}
	})
}

// Engines do not add up: all of them leave a processor to short evaluations.
func TestEnginesShareTheLane(t *testing.T) {
	if a, b := New(Options{}), New(Options{}); a.lane != b.lane {
		t.Error("each Engine has a lane of its own")
	}
}
