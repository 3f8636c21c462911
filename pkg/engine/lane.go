package engine

import (
	"context"
	"runtime"
)

// lane limits how many long evaluations run at once, so that they leave a processor
// to all others.
type lane chan struct{}

// newLane returns a lane for one evaluation less than the number of processors, but
// at least for one.
func newLane() lane { return make(lane, max(runtime.GOMAXPROCS(0)-1, 1)) }

// A request needs a place in the lane after freeYields times cel.YieldEvery units of
// work; a usual one ends before its first yield. It gives its place to the next one
// after laneYields.
const (
	freeYields = 16
	laneYields = 32
)

// turn is one request's use of the lane.
type turn struct {
	lane lane
	// yields counts since the request began, or since it entered the lane.
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
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leave gives the place in the lane to the next one.
func (t *turn) leave() {
	if t.inside {
		t.inside = false
		<-t.lane
	}
}
