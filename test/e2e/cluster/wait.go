//go:build e2e

package cluster

import (
	"context"
	"testing"
	"time"
)

// What is waited for is asked for each pollEvery at first, and seldomer the longer it takes,
// at most each pollSeldom: questions load the two cores that the servers share with the tests.
const (
	pollEvery  = 25 * time.Millisecond
	pollSeldom = 100 * time.Millisecond
)

// Patience is the timeout of a wait that measures nothing: it only ends a test that
// would wait for ever, so it must be long enough for any machine.
const Patience = 3 * time.Minute

// Eventually calls f until it returns nil. After timeout the test fails with
// what was waited for and the last error. f's context ends with the timeout.
func Eventually(t testing.TB, timeout time.Duration, what string, f func(ctx context.Context) error) {
	t.Helper()
	start := time.Now()
	if err := poll(t.Context(), timeout, f); err != nil {
		t.Fatalf("waited %s for %s: %v", time.Since(start).Round(time.Millisecond), what, err)
	}
}

// Always calls f for as long as d and fails the test at the first error.
func Always(t testing.TB, d time.Duration, what string, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			t.Fatalf("%s: %v", what, err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func poll(ctx context.Context, timeout time.Duration, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last error
	for pause := pollEvery; ; pause = min(pause*11/10, pollSeldom) {
		err := f(ctx)
		if err == nil {
			return nil
		}
		// An error that the end of the context made says less than the one before.
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(pause):
		}
	}
}
