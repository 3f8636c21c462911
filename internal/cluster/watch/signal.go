package watch

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// quiet is how long there must be no notification before a change is processed. Objects that
	// are applied together, such as a policy and its binding, arrive within that time.
	quiet = 20 * time.Millisecond
	// brief is used instead of quiet for the first change after a pause of at least patience. If
	// more changes follow, only the first one is processed early.
	brief = 3 * time.Millisecond
	// patience bounds the wait while notifications keep coming.
	patience = 250 * time.Millisecond
)

// Signal tells one receiver that something has changed. Any number of calls of Notify
// between two receives count as one.
type Signal chan struct{}

// NewSignal returns a Signal that nobody has notified.
func NewSignal() Signal { return make(Signal, 1) }

// Notify notifies the receiver. It never blocks.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Wait returns true after a notification, and false if ctx ends before.
func (s Signal) Wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s:
		return true
	}
}

// WaitQuiet waits for a notification, and then until none has come for 20 ms, but for
// no more than 250 ms. It returns false if ctx ends before.
func (s Signal) WaitQuiet(ctx context.Context) bool { return s.Wait(ctx) && s.drain(ctx, quiet) }

// WaitQuietSince is WaitQuiet for a caller that processed the previous change at the time last. If
// that is at least 250 ms ago, 3 ms without a notification are enough.
func (s Signal) WaitQuietSince(ctx context.Context, last time.Time) bool {
	if !s.Wait(ctx) {
		return false
	}
	if time.Since(last) >= patience {
		return s.drain(ctx, brief)
	}
	return s.drain(ctx, quiet)
}

// drain waits until there has been no notification for pause, or until patience has passed.
func (s Signal) drain(ctx context.Context, pause time.Duration) bool {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-limit.C:
			return true
		case <-time.After(pause):
			return true
		case <-s:
		}
	}
}

// Sleep waits for d or, if that comes first, for a value in one of the channels, which
// may be nil. It returns false if ctx has ended.
func Sleep(ctx context.Context, d time.Duration, a, b <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-a:
	case <-b:
	case <-timer.C:
	}
	return ctx.Err() == nil
}

// Listeners notifies any number of receivers. The zero Listeners has none.
type Listeners struct {
	mu  sync.Mutex
	all []Signal
}

// Add returns a Signal for one receiver. It cannot be removed.
func (l *Listeners) Add() Signal {
	s := NewSignal()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
	return s
}

// Notify notifies all receivers.
func (l *Listeners) Notify() {
	l.mu.Lock()
	all := slices.Clip(l.all)
	l.mu.Unlock()
	for _, s := range all {
		s.Notify()
	}
}
