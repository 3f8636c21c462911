package ledger

import (
	"testing"

	"github.com/mapd-project/mapd/internal/hammer"
	"github.com/mapd-project/mapd/pkg/engine"
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
