package engine

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// lane limits how many long evaluations run at once, so that one processor is free for all
// other requests.
type lane chan struct{}

// processLane returns the lane that all Engines of the process share. With one lane for each
// Engine, their long evaluations together could occupy all processors.
var processLane = sync.OnceValue(newLane)

// newLane returns a lane for one evaluation less than the number of processors, and for one at
// least.
func newLane() lane { return make(lane, max(runtime.GOMAXPROCS(0)-1, 1)) }

// A request must enter the lane after freeYields times cel.YieldEvery units of work; a usual
// request ends before its first yield. It leaves the lane for the next request after
// laneYields.
const (
	freeYields = 16
	laneYields = 32
)

// turn is one request's use of the lane.
type turn struct {
	lane lane
	// yields counts the yields since the request began, or since it entered the lane.
	yields int
	inside bool
}

// Yield implements cel.Turn.
func (t *turn) Yield(ctx context.Context) error {
	t.yields++
	switch {
	case t.lane == nil || !t.inside && t.yields <= freeYields || t.inside && t.yields <= laneYields:
		return nil
	case t.inside:
		t.leave()
	}
	select {
	case t.lane <- struct{}{}:
		t.inside, t.yields = true, 0
		held.begin(t)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave leaves the lane, so that the next request can enter it.
func (t *turn) leave() {
	if t.inside {
		t.inside = false
		held.end(t)
		<-t.lane
	}
}

// held has the requests that are in a lane, and since when.
var held = places{since: map[*turn]time.Time{}}

type places struct {
	mu    sync.Mutex
	since map[*turn]time.Time
}

func (p *places) begin(t *turn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.since[t] = time.Now()
}

func (p *places) end(t *turn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.since, t)
}

// LongestTurn returns for how long the longest evaluation of this process has been in its lane;
// 0 if there is none. An evaluation leaves the lane after milliseconds, so seconds mean that it
// is in a step that cannot be interrupted.
func LongestTurn() time.Duration {
	held.mu.Lock()
	defer held.mu.Unlock()
	var longest time.Duration
	for _, since := range held.since {
		longest = max(longest, time.Since(since))
	}
	return longest
}
