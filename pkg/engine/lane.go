package engine

import (
	"context"
	"runtime"
)

// lane is where evaluations that take long wait for each other, so that they leave a
// processor to all others.
type lane chan struct{}

// newLane returns a lane for one evaluation less than there are processors, but at
// least one.
func newLane() lane { return make(lane, max(runtime.GOMAXPROCS(0)-1, 1)) }

// A request is in the lane from freeYields times cel.YieldEvery units of work on. A
// usual one is done before it yields for the first time. Whoever is in the lane lets the
// next one in after laneYields.
const (
	freeYields = 16
	laneYields = 32
)

// turn is one request's use of the lane.
type turn struct {
	lane lane
	// yields are those since the request began, or since it entered the lane.
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

// leave lets the next one in.
func (t *turn) leave() {
	if t.inside {
		t.inside = false
		<-t.lane
	}
}
