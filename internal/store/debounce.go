package store

import (
	"context"
	"time"
)

const (
	// quiet is how long nothing may happen before a change is taken up. What is
	// applied together, a policy and its binding, arrives within it.
	quiet = 20 * time.Millisecond
	// brief is enough for the first change after patience without any: if it is
	// the first of many, the others wait.
	brief = 3 * time.Millisecond
	// patience is how long a change waits at most while others keep coming.
	patience = 250 * time.Millisecond
)

// signal is a bell: rung any number of times, it is heard once.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) ring() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// settle waits for the bell and then until it has been silent for quiet, or for
// patience in all. It returns false if ctx ends before.
func (s signal) settle(ctx context.Context) bool { return s.hear(ctx) && s.calm(ctx, quiet) }

// settleAfter is settle for who was done with what came before at last: if the
// bell has been silent for long since, brief will do instead of quiet.
func (s signal) settleAfter(ctx context.Context, last time.Time) bool {
	if !s.hear(ctx) {
		return false
	}
	if time.Since(last) >= patience {
		return s.calm(ctx, brief)
	}
	return s.calm(ctx, quiet)
}

// hear waits for the bell.
func (s signal) hear(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s:
		return true
	}
}

// calm waits until the bell has been silent for pause, or for patience in all.
func (s signal) calm(ctx context.Context, pause time.Duration) bool {
	enough := time.NewTimer(patience)
	defer enough.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-enough.C:
			return true
		case <-time.After(pause):
			return true
		case <-s:
		}
	}
}
