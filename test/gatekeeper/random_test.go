package gatekeeper

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mapd-project/mapd/test/hammer"
)

// The same cases every time, so that a failure can be looked at again.
// MAPD_SCENARIOS asks for another number of them, or for a range: 100000-200000.
func TestRandom(t *testing.T) {
	first, last := uint64(0), uint64(hammer.Count(1000))
	if from, to, ok := strings.Cut(os.Getenv("MAPD_SCENARIOS"), "-"); ok {
		first, _ = strconv.ParseUint(from, 10, 64)
		last, _ = strconv.ParseUint(to, 10, 64)
	} else if n, err := strconv.ParseUint(from, 10, 64); err == nil {
		last = n
	}
	seeds := make(chan uint64)
	var mu sync.Mutex
	failures := 0
	total := NewComparison()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			c := NewComparison()
			for seed := range seeds {
				random := (&gen{data: seeded(seed)}).random()
				if disagreement(t.Context(), c, random) == "" {
					continue
				}
				mu.Lock()
				if failures++; failures <= 10 {
					t.Errorf("seed %d: %s", seed, keep(t, finding(t.Context(), random), fmt.Sprintf("seed-%d", seed)))
				}
				mu.Unlock()
			}
			mu.Lock()
			total.Add(c)
			mu.Unlock()
		})
	}
	for seed := first; seed < last; seed++ {
		seeds <- seed
	}
	close(seeds)
	workers.Wait()
	if failures > 10 {
		t.Errorf("%d cases more", failures-10)
	}
	t.Log(total)
	if last-first >= 100 && (total.Mutated == 0 || total.Errors == 0 || total.Native == 0) {
		t.Error("too little is compared")
	}
}

func FuzzGatekeeper(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seeded(seed))
	}
	c := NewComparison()
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4096 {
			return
		}
		if random := (&gen{data: data}).random(); disagreement(t.Context(), c, random) != "" {
			t.Error(keep(t, finding(t.Context(), random), "fuzz"))
		}
	})
}

// finding is the smallest case like one on which the sides differ: how they do,
// and a case file.
func finding(ctx context.Context, random Case) string {
	c := NewComparison()
	c.every = 1
	small := shrink(random, func(smaller Case) bool { return disagreement(ctx, c, smaller) != "" })
	return disagreement(ctx, c, small) + "\n" + small.Txtar("Gatekeeper §14.2: Found by the random test.")
}

// disagreement says how the sides differ on a case.
func disagreement(ctx context.Context, c *Comparison, random Case) string {
	s, differences, err := c.Take(random.Mutators, everyProvider())
	if err != nil {
		return err.Error()
	}
	more, err := c.Request(ctx, s, random.Request)
	if err != nil {
		return err.Error()
	}
	differences = append(differences, more...)
	more, err = c.Policies(ctx, s, random.Request, c.Cases%c.every == 0)
	if err != nil {
		return err.Error()
	}
	return strings.Join(append(differences, more...), "\n")
}

// keep writes a finding where a person can pick it up, if MAPD_FINDINGS names a
// directory, and returns it.
func keep(t testing.TB, finding, name string) string {
	if dir := os.Getenv("MAPD_FINDINGS"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, name+".txtar"), []byte(finding), 0o644); err != nil {
			t.Error(err)
		}
	}
	return finding
}
