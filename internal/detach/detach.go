// Package detach runs work that cannot be interrupted where whoever asked for it
// can stop waiting. Work that its caller has abandoned is counted until it ends:
// in all, and for each key, such as a policy.
package detach

import (
	"context"
	"fmt"
	"sync"
)

// Group bounds how much work runs at once. It is safe for concurrent use.
type Group struct {
	slots chan struct{}

	mu        sync.Mutex
	abandoned map[string][]*task // by key
	count     int                // of all keys
}

// task is one piece of work and how it ended.
type task struct {
	ended    chan struct{} // closed when it has ended, after panicked is set
	panicked any
}

// New returns a Group that lets at most limit pieces of work run, whether somebody
// waits for them or they were abandoned.
func New(limit int) *Group {
	return &Group{slots: make(chan struct{}, limit), abandoned: map[string][]*task{}}
}

// BusyError says that work was not begun.
type BusyError struct {
	// Ended is closed when the abandoned work of the same key has ended; nil if
	// there was none, and no room among the work of other keys before ctx was done.
	Ended <-chan struct{}
	limit int
	cause error
}

func (e *BusyError) Error() string {
	if e.Ended != nil {
		return "earlier work that was abandoned still runs"
	}
	return fmt.Sprintf("%d pieces of other work still run: %v", e.limit, e.cause)
}

func (e *BusyError) Unwrap() error { return e.cause }

// Do runs work on a goroutine of its own and waits for it. If ctx is done first,
// Do abandons the work and returns the cause; the work goes on, so what it writes
// must not be read then. The error is a *BusyError, and nothing was run, if
// abandoned work of the same key goes on, or if there is no room for more work
// before ctx is done. A panic of the work becomes a panic of Do with the same
// value; a panic of abandoned work is dropped.
func (g *Group) Do(ctx context.Context, key string, work func()) error {
	if err := g.begin(ctx, key); err != nil {
		return err
	}
	t := &task{ended: make(chan struct{})}
	go func() {
		defer g.end(key, t)
		defer func() { t.panicked = recover() }()
		work()
	}()
	select {
	case <-t.ended:
	case <-ctx.Done():
		if g.abandon(key, t) {
			return context.Cause(ctx)
		}
	}
	if t.panicked != nil {
		panic(t.panicked)
	}
	return nil
}

// Abandoned returns how many pieces of abandoned work still run.
func (g *Group) Abandoned() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count
}

// begin takes a slot.
func (g *Group) begin(ctx context.Context, key string) error {
	if err := g.refuse(key); err != nil {
		return err
	}
	select {
	case g.slots <- struct{}{}:
		return nil
	default:
	}
	select {
	case g.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &BusyError{limit: cap(g.slots), cause: context.Cause(ctx)}
	}
}

func (g *Group) refuse(key string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if tasks := g.abandoned[key]; len(tasks) > 0 {
		return &BusyError{Ended: tasks[len(tasks)-1].ended}
	}
	return nil
}

// abandon reports whether t still runs, and counts it in that case.
func (g *Group) abandon(key string, t *task) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-t.ended:
		return false
	default:
	}
	g.abandoned[key] = append(g.abandoned[key], t)
	g.count++
	return true
}

func (g *Group) end(key string, t *task) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, other := range g.abandoned[key] {
		if other != t {
			continue
		}
		g.count--
		rest := append(g.abandoned[key][:i:i], g.abandoned[key][i+1:]...)
		if len(rest) == 0 {
			delete(g.abandoned, key)
		} else {
			g.abandoned[key] = rest
		}
		break
	}
	<-g.slots
	close(t.ended)
}
