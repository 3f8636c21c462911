package load

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// MaxRequests is how many requests one Run may send.
	MaxRequests = 1_000_000
	// MaxTime is how long one Run may send.
	MaxTime = 5 * time.Minute
	// maxErrors ends a Run: the server is gone, or wrong.
	maxErrors = 20
)

// Limits end a Run, whichever is reached first.
type Limits struct {
	Requests int
	Time     time.Duration
}

func (l Limits) check() error {
	if l.Requests < 1 || l.Requests > MaxRequests {
		return fmt.Errorf("%d requests: must be 1 to %d", l.Requests, MaxRequests)
	}
	if l.Time <= 0 || l.Time > MaxTime {
		return fmt.Errorf("a time of %s: must be more than nothing and at most %s", l.Time, MaxTime)
	}
	return nil
}

// Result is what a Run has seen.
type Result struct {
	Requests int // with a good answer
	Took     time.Duration
	Latency  Latency
	// Errors are answers that did not come, or were refusals, or had another patch
	// than the first one; Err is one of them.
	Errors int
	Err    error
}

// Latency is how long requests took.
type Latency struct{ P50, P90, P99, Max time.Duration }

// Summarize sorts times and returns their percentiles.
func Summarize(times []time.Duration) Latency {
	if len(times) == 0 {
		return Latency{}
	}
	slices.Sort(times)
	at := func(percent int) time.Duration { return times[len(times)*percent/100] }
	return Latency{P50: at(50), P90: at(90), P99: at(99), Max: times[len(times)-1]}
}

// Run sends a Review on all connections at once, on each a request after the other,
// until a limit is reached. Before that every connection sends one request that does
// not count, so that no handshake does; then ready is called.
func (c *Client) Run(ctx context.Context, r *Review, l Limits, ready func() error) (*Result, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	workers, err := c.connect(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := ready(); err != nil {
		return nil, err
	}
	var (
		result  Result
		mu      sync.Mutex // of result
		sent    atomic.Int64
		running sync.WaitGroup
	)
	failed := func(err error) (enough bool) {
		mu.Lock()
		defer mu.Unlock()
		result.Errors++
		result.Err = err
		return result.Errors >= maxErrors
	}
	start := time.Now()
	for _, w := range workers {
		running.Go(func() {
			for ctx.Err() == nil && time.Since(start) < l.Time {
				n := sent.Add(1)
				if n > int64(l.Requests) {
					return
				}
				if err := w.one(ctx, int(n)); err != nil && failed(err) {
					return
				}
			}
		})
	}
	running.Wait()
	result.Took = time.Since(start)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var times []time.Duration
	for _, w := range workers {
		times = append(times, w.times...)
	}
	result.Requests, result.Latency = len(times), Summarize(times)
	return &result, nil
}

// connect makes a worker of each connection and has it send once. What the first is
// answered is what all others have to be.
func (c *Client) connect(ctx context.Context, r *Review) ([]*worker, error) {
	body, id := r.next(nil, 0)
	var first bytes.Buffer
	if err := c.send(ctx, c.connections[0], body, &first); err != nil {
		return nil, err
	}
	want, err := newAnswer(first.Bytes(), id)
	if err != nil {
		return nil, err
	}
	var workers []*worker
	for _, h := range c.connections {
		w := &worker{client: c, connection: h, review: r, want: want}
		if err := w.one(ctx, 0); err != nil {
			return nil, err
		}
		w.times = nil
		workers = append(workers, w)
	}
	return workers, nil
}
