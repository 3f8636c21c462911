package store

import (
	"context"
	"time"
)

const (
	// quiet is how long nothing may happen before a change is taken up. What is
	// applied together, a policy and its binding, arrives within it.
	quiet = 20 * time.Millisecond
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
func (s signal) settle(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s:
	}
	enough := time.NewTimer(patience)
	defer enough.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-enough.C:
			return true
		case <-time.After(quiet):
			return true
		case <-s:
		}
	}
}
