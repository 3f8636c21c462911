package controllers

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mapd-project/mapd/internal/cluster/history"
	"github.com/mapd-project/mapd/internal/cluster/watch"
	"github.com/mapd-project/mapd/test/fakeapi"
)

func TestAttempts(t *testing.T) {
	var a attempts
	one, other := errors.New("one"), errors.New("other")
	for i, step := range []struct {
		err  error
		wait time.Duration
		news bool
	}{
		{nil, 0, false},
		{one, retryFirst, true},
		{one, 2 * retryFirst, false},
		{other, 3 * retryFirst, true},
		{other, 3 * retryFirst, false},
		{nil, 0, false},
		{other, retryFirst, true},
	} {
		if wait, news := a.ended(step.err, 3*retryFirst); wait != step.wait || news != step.news {
			t.Errorf("step %d: %s %v", i, wait, news)
		}
	}
}

// logged is a log that is read while it is written.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

// A failure that lasts is logged once, and one that comes back is logged again, by all that a
// replica tries again and again.
func TestFailuresThatComeBackAreLoggedAgain(t *testing.T) {
	in(t, func(t *testing.T, c *cluster) {
		var log logged
		var counted counting
		var failing atomic.Bool
		l := history.New("a")
		w, stop := c.replica(t, "a", func(o *Options) {
			o.Log = slog.New(slog.NewTextHandler(&log, nil))
			o.Counts = counted.counts
			o.Maintain = func(ctx context.Context, applied func() []byte) error {
				for {
					applied()
					if failing.Load() {
						return errors.New("cut off")
					}
					if !watch.Sleep(ctx, time.Minute, nil, nil) {
						return nil
					}
				}
			}
		})
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.StoreRecords(ctx, l) })
		defer func() { cancel(); running.Wait() }()
		period := func(fail bool) {
			failing.Store(fail)
			c.refuse(func(r fakeapi.Request) error {
				if fail && r.Resource == configMapResource {
					return errors.New("cut off")
				}
				return nil
			})
			for range 2 {
				counted.n.Add(1)
				wrote(l, "x")
				time.Sleep(recordsCleaned/2 + time.Second)
			}
		}
		for i := 1; i <= 2; i++ {
			period(false)
			period(true)
			for _, text := range []string{
				"counts of requests not written to the ConfigMap of this replica", "counts of requests of all replicas not added up", "records of changes not stored",
				"stored records of replicas that are gone not deleted", "certificates cannot be maintained",
			} {
				if got := log.count(text); got != i {
					t.Errorf("period %d: %q is logged %d times", i, text, got)
				}
			}
		}
	})
}
