package history

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/mapd-project/mapd/pkg/api"
	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/test/hammer"
)

// plain is a step with one path, as engines make them: without objects around it.
func plain(policyName string) engine.Step {
	return engine.Step{Stage: "policies", Policy: policyName, Binding: policyName, Outcome: engine.Changed}
}

// TestAllocations holds that recording a review allocates nothing once its policies are
// known.
func TestAllocations(t *testing.T) {
	l, req := New("a"), request("shop", "web", nil)
	none, three := decided(), decided(plain("a"), plain("b"), plain("c"))
	for range 20_000 { // until the buffers have their size
		l.Record(req, three, 0)
	}
	if n := hammer.Allocs(t, func() { l.Record(req, none, 0); l.Record(req, three, 0) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestMemory fills a Recorder as far as its bounds allow: with the counts and examples of
// 10,000 policies and a binding each, with all samples, each as long as can be, and with
// all of the history.
func TestMemory(t *testing.T) {
	hammer.Alone(t)
	inUse := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := inUse()
	l := New("a")
	pairs, entries := 10_000, 60_000
	if testing.Short() {
		pairs, entries = maxSamples, 1000
	}
	names := make([]string, pairs)
	for i := range names {
		names[i] = fmt.Sprintf("a-policy-with-a-usual-name-%05d", i)
	}
	mine := inUse() - before // the names, which the Index has anyway
	huge := map[string]any{}
	for i := range 20 {
		huge[fmt.Sprint(i)] = strings.Repeat("x", maxValue/2)
	}
	for i, name := range names {
		l.Record(request("shop", "web-7d4b9-x2x4z", nil), decided(changed(name, name, "a", "b")), 0)
		if i < maxSamples {
			l.Record(request("shop", "web-7d4b9-x2x4z", nil), shadowed(shadow(api.Shadow, Pair{name, name}, map[string]any{}, huge)), 0)
		}
	}
	counts := inUse() - before - mine
	long := decided(changed(names[0], names[0], strings.Repeat("a", 90), strings.Repeat("b", 90)))
	for i := range entries {
		l.Record(request(fmt.Sprintf("shop-%d", i%100), fmt.Sprintf("web-%d", i), map[string]any{"uid": fmt.Sprintf("7f0c6a2e-5a0c-4d8e-9b58-%012d", i)}), long, 0)
	}
	all := inUse() - before - mine
	t.Logf("counts, examples and samples %.1f MiB, with the history %.1f MiB", float64(counts)/(1<<20), float64(all)/(1<<20))
	// Those with samples have run in two modes.
	if len(l.Counts()) != len(names)+maxSamples || len(l.samples.all) != maxSamples {
		t.Errorf("%d counts, %d samples", len(l.Counts()), len(l.samples.all))
	}
	if all > 64<<20 {
		t.Errorf("the Recorder holds %d bytes", all)
	}
	runtime.KeepAlive(names)
}

func BenchmarkRecord(b *testing.B) {
	for name, d := range map[string]*engine.Decision{
		"no policy": {}, "unchanged": decided(step("a", "a", engine.Unchanged)), "three changed": decided(plain("a"), plain("b"), plain("c")),
	} {
		b.Run(name, func(b *testing.B) {
			l, req := New("a"), request("shop", "web", nil)
			b.ReportAllocs()
			for b.Loop() {
				l.Record(req, d, 0)
			}
		})
	}
}
