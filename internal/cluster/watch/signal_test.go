package watch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestWaitQuiet(t *testing.T) {
	tests := map[string]struct {
		rings []time.Duration // after the one before
		want  time.Duration   // after the first
	}{
		"one change":                    {rings: []time.Duration{0}, want: quiet},
		"a second within the pause":     {rings: []time.Duration{0, quiet / 2}, want: quiet + quiet/2},
		"a second after the pause":      {rings: []time.Duration{0, 2 * quiet}, want: quiet},
		"changes that never pause":      {rings: every(quiet/2, 2*patience), want: patience},
		"several at the very same time": {rings: []time.Duration{0, 0, 0}, want: quiet},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewSignal()
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				go func() {
					for _, pause := range tt.rings {
						select {
						case <-time.After(pause):
							s.Notify()
						case <-ctx.Done():
							return
						}
					}
				}()
				start := time.Now()
				if !s.WaitQuiet(t.Context()) {
					t.Fatal("WaitQuiet returned false")
				}
				if got := time.Since(start); got != tt.want {
					t.Errorf("settled after %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// A change that comes alone is taken up at once, one of many with the others.
func TestWaitQuietSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSignal()
		last := time.Now()
		for _, tt := range []struct{ pause, want time.Duration }{
			{0, quiet}, {patience / 2, quiet}, {patience, brief}, {quiet, quiet}, {2 * patience, brief},
		} {
			time.Sleep(tt.pause)
			start := time.Now()
			s.Notify()
			if !s.WaitQuietSince(t.Context(), last) {
				t.Fatal("WaitQuietSince returned false")
			}
			last = time.Now()
			if got := time.Since(start); got != tt.want {
				t.Errorf("%s after the last one: settled after %s, want %s", tt.pause, got, tt.want)
			}
		}
	})
}

func every(pause, total time.Duration) []time.Duration {
	var out []time.Duration
	for d := time.Duration(0); d < total; d += pause {
		out = append(out, pause)
	}
	out[0] = 0
	return out
}

func TestWaitQuietStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithTimeout(t.Context(), quiet/2)
		defer stop()
		s := NewSignal()
		s.Notify()
		if s.WaitQuiet(ctx) {
			t.Error("WaitQuiet went on after its context had ended")
		}
		if s.WaitQuiet(ctx) {
			t.Error("WaitQuiet returned without a notification")
		}
	})
}

// What happens while a snapshot is being made is not lost.
func TestSignalIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSignal()
		s.Notify()
		s.Notify()
		if !s.WaitQuiet(t.Context()) {
			t.Fatal("the notification was lost")
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if s.WaitQuiet(ctx) {
			t.Error("two notifications were received twice")
		}
	})
}
