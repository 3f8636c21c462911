package main

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/perf/benchmath"

	"github.com/mapd-project/mapd/test/bench"
)

// The units of figures.
const (
	perOp  = "sec/op"
	allocs = "allocs/op"
	kept   = "B" // of live heap that one result holds on to
)

// sample is what one turn of one side gave.
type sample struct {
	n       int // how often it did what is measured
	figures map[string]float64
}

// fresh is a side that needs something new for each Run, which is not measured.
type fresh interface{ Fresh() }

// take measures a side for the time that the flag test.benchtime says.
func take(ctx context.Context, s bench.Side) (sample, error) {
	f, isFresh := s.(fresh)
	var failed error
	r := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if isFresh {
				b.StopTimer()
				f.Fresh()
				b.StartTimer()
			}
			if _, failed = s.Run(ctx); failed != nil {
				b.FailNow()
			}
		}
	})
	if failed != nil {
		return sample{}, failed
	}
	n := float64(r.N)
	return sample{r.N, map[string]float64{perOp: r.T.Seconds() / n, allocs: float64(r.MemAllocs) / n}}, nil
}

// hold measures a side for d, once at least, and what its results keep.
func hold(ctx context.Context, s bench.Side, d time.Duration) (sample, error) {
	var all []any
	before, start := liveHeap(), time.Now()
	for len(all) == 0 || time.Since(start) < d {
		result, err := s.Run(ctx)
		if err != nil {
			return sample{}, err
		}
		all = append(all, result)
	}
	took, n := time.Since(start), float64(len(all))
	bytes := liveHeap() - before
	runtime.KeepAlive(all)
	return sample{len(all), map[string]float64{perOp: took.Seconds() / n, kept: max(bytes, 0) / n}}, nil
}

// liveHeap collects twice, because what a sync.Pool holds survives once.
func liveHeap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// results are the samples of each side of a row.
type results map[string][]sample

// measure prepares all sides, whose answers have to be right, and measures them in
// turns, so that what slows the machine down for a while slows down all of them.
func (r *row) measure(ctx context.Context, o options) (results, error) {
	entries := r.entries()
	for _, e := range entries {
		if err := bench.Check(ctx, e.side, e.workload); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", r.name, e.name, err)
		}
	}
	out := results{}
	for range o.count {
		for _, e := range entries {
			var s sample
			var err error
			if r.table.hold {
				s, err = hold(ctx, e.side, o.benchtime)
			} else {
				s, err = take(ctx, e.side)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", r.name, e.name, err)
			}
			out[e.name] = append(out[e.name], s)
		}
	}
	return out, nil
}

// values are the figures of a column, turn by turn; nil if there are none.
func (rs results) values(c column) []float64 {
	var all []float64
	over := rs[c.over]
	for i, s := range rs[c.side] {
		v, ok := s.figures[c.unit]
		switch {
		case !ok:
			return nil
		case c.over == "":
		case over == nil:
			return nil
		default:
			v = over[i].figures[c.unit] / v
		}
		all = append(all, v)
	}
	return all
}

// summary is the median and its 95 % confidence interval, as benchstat has them.
func (rs results) summary(c column) (s benchmath.Summary, ok bool) {
	values := rs.values(c)
	if values == nil {
		return s, false
	}
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), 0.95), true
}
