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
	// maxErrors is the number of errors after which a Run ends.
	maxErrors = 20
)

// Limits end a Run when the first of them is reached.
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

// Result has the outcome of a Run.
type Result struct {
	Requests int // number of requests with a good answer
	Took     time.Duration
	Latency  Latency
	// Errors counts requests that got no answer, were denied, or got another patch than the first
	// one. Err is one of these errors.
	Errors int
	Err    error
}

// Latency has percentiles of the times of requests.
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

// Run sends a Review on all connections at once, on each one request after the other, until a limit
// is reached. Before that, every connection sends one request that is not counted, so that the
// times do not include handshakes; then Run calls ready.
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

// connect returns a worker for each connection after it has sent one request. The first answer is
// the one that all others have to equal.
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
