package benchmark

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/webhook"
)

// Request is a review that Run sends repeatedly.
type Request struct {
	Name   string // of which there is only one
	Answer string // what comes of it, in a word or two
	Body   []byte // of the review
	Want   []byte // the body of the answer
}

// Options say how long to measure. Duration or Iterations is required.
type Options struct {
	// Duration is how long to measure in all; the requests share it equally.
	Duration time.Duration
	// Iterations is how often to send each request; 0 means as often as
	// Duration allows.
	Iterations int
	// Concurrency is how many requests are sent at once; 0 means 1.
	Concurrency int
}

// warmUp divides the measured time. As much as the quotient is spent before, to fill caches and
// let the heap grow, and after, to measure the parts.
const warmUp = 10

// Run measures requests one after the other; there must be at least one. It sets the figures and
// parts of the Result, and leaves the other fields to the caller. It returns an error if an
// answer differs from the expected one, or if ctx ends.
func Run(ctx context.Context, e *engine.Engine, requests []Request, o Options) (*Result, error) {
	r := &Result{
		Format: format, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.GOMAXPROCS(0),
		Concurrency: max(o.Concurrency, 1),
	}
	handler := webhook.NewHandler(webhook.Options{Admitter: e})
	per := limit{iterations: o.Iterations, duration: o.Duration / time.Duration(len(requests))}
	parts := newParts()
	for i := range requests {
		m := &measurement{handler: handler, request: &requests[i], concurrency: r.Concurrency}
		if _, err := m.run(ctx, per.part(warmUp)); err != nil {
			return nil, err
		}
		runtime.GC()
		f, err := m.run(ctx, per)
		if err != nil {
			return nil, err
		}
		r.Requests = append(r.Requests, f)
		if err := parts.measure(ctx, e, &requests[i], per.part(warmUp)); err != nil {
			return nil, err
		}
	}
	r.Parts = parts.list()
	return r, nil
}

// limit says when to stop. It allows at least one iteration.
type limit struct {
	iterations int // 0: until the duration is over
	duration   time.Duration
}

func (l limit) part(n int) limit {
	if l.iterations > 0 {
		l.iterations = max(l.iterations/n, 1)
	}
	l.duration /= time.Duration(n)
	return l
}

// share returns the part of l for one of n workers. Workers beyond the number
// of iterations have nothing to do.
func (l limit) share(worker, n int) (_ limit, any bool) {
	if l.iterations == 0 {
		return l, true
	}
	rest := 0
	if worker < l.iterations%n {
		rest = 1
	}
	l.iterations = l.iterations/n + rest
	return l, l.iterations > 0
}

// more reports whether to continue after done requests.
func (l limit) more(done int, spent time.Duration) bool {
	switch {
	case done == 0:
		return true
	case l.iterations > 0:
		return done < l.iterations
	}
	return spent < l.duration
}

// measurement measures one request.
type measurement struct {
	handler     *webhook.Handler
	request     *Request
	concurrency int
}

func (m *measurement) run(ctx context.Context, all limit) (Figures, error) {
	times := make([]histogram, m.concurrency)
	errs := make([]error, m.concurrency)
	var workers sync.WaitGroup
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := cpuTime(), time.Now()
	for i := range m.concurrency {
		if l, any := all.share(i, m.concurrency); any {
			workers.Go(func() { errs[i] = m.loop(ctx, l, &times[i]) })
		}
	}
	workers.Wait()
	took, cpu := time.Since(start), cpuTime()-cpu
	runtime.ReadMemStats(&after)
	if err := errors.Join(errs...); err != nil {
		return Figures{}, err
	}
	for i := range times[1:] {
		times[0].merge(&times[i+1])
	}
	return m.figures(&times[0], took, cpu, &before, &after), nil
}

func (m *measurement) loop(ctx context.Context, l limit, times *histogram) error {
	begun := time.Now()
	for n, spent := 0, time.Duration(0); l.more(n, spent); n++ {
		start := time.Now()
		code, body := m.handler.Review(ctx, m.request.Body)
		end := time.Now()
		spent = end.Sub(begun)
		times.add(end.Sub(start))
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if code != http.StatusOK || !bytes.Equal(body, m.request.Want) {
			return fmt.Errorf("%s: request %d has another answer than the first: %d %s", m.request.Name, n+1, code, body)
		}
	}
	return nil
}

func (m *measurement) figures(times *histogram, took, cpu time.Duration, before, after *runtime.MemStats) Figures {
	n := float64(times.n)
	return Figures{
		Name: m.request.Name, Answer: m.request.Answer, Requests: times.n,
		PerSecond:   n / max(took, 1).Seconds(),
		P50:         float64(times.quantile(0.50)),
		P90:         float64(times.quantile(0.90)),
		P99:         float64(times.quantile(0.99)),
		Max:         float64(times.max),
		CPU:         float64(cpu) / n,
		Allocations: float64(after.Mallocs-before.Mallocs) / n,
		Bytes:       float64(after.TotalAlloc-before.TotalAlloc) / n,
	}
}
