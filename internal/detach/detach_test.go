package detach

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/mapd-project/mapd/test/hammer"
)

func TestDo(t *testing.T) {
	g := New(1)
	ran := false
	if err := g.Do(t.Context(), "a", func() { ran = true }); err != nil || !ran {
		t.Fatalf("Do: %v, ran: %v", err, ran)
	}
	defer func() {
		if v := recover(); v != "oops" {
			t.Errorf("recovered %v", v)
		}
		if err := g.Do(t.Context(), "a", func() {}); err != nil {
			t.Errorf("after a panic: %v", err)
		}
	}()
	_ = g.Do(t.Context(), "a", func() { panic("oops") })
}

// What is abandoned keeps its slot and its key until it ends.
func TestAbandoned(t *testing.T) {
	g := New(2)
	reason := errors.New("reason")
	hold := make(chan struct{})
	abandon := func(key string) {
		t.Helper()
		ctx, cancel := context.WithCancelCause(t.Context())
		err := g.Do(ctx, key, func() { cancel(reason); <-hold; panic("nobody sees this") })
		if !errors.Is(err, reason) {
			t.Fatalf("abandoned with %v", err)
		}
	}
	abandon("a")
	if n := g.Abandoned(); n != 1 {
		t.Errorf("%d are abandoned, want 1", n)
	}
	var busy *BusyError
	if err := g.Do(t.Context(), "a", func() { t.Error("ran beside its own abandoned work") }); !errors.As(err, &busy) || busy.Ended == nil {
		t.Fatalf("work of the same key: %v", err)
	}
	if err := g.Do(t.Context(), "b", func() {}); err != nil {
		t.Errorf("work of another key: %v", err)
	}
	abandon("b")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	var full *BusyError
	if err := g.Do(ctx, "c", func() { t.Error("ran beyond the limit") }); !errors.As(err, &full) || full.Ended != nil || !errors.Is(err, reason) {
		t.Errorf("beyond the limit: %v", err)
	}
	close(hold)
	<-busy.Ended
	if err := g.Do(t.Context(), "a", func() {}); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

func TestHammer(t *testing.T) {
	const limit = 3
	g := New(limit)
	var running, most atomic.Int64
	hammer.Run(8, 200, func(i, n int) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if n%3 == 0 {
			cancel()
		}
		_ = g.Do(ctx, string(rune('a'+i%4)), func() {
			if now := running.Add(1); now > most.Load() {
				most.Store(now)
			}
			running.Add(-1)
		})
	})
	if most.Load() > limit {
		t.Errorf("%d ran at once, limit %d", most.Load(), limit)
	}
	// All slots come back.
	for range limit {
		g.slots <- struct{}{}
	}
	if n := g.Abandoned(); n != 0 {
		t.Errorf("%d are abandoned at the end", n)
	}
}
