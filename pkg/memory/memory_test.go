package memory

import (
	"errors"
	"math"
	"runtime"
	"testing"

	"github.com/mapd-project/mapd/test/hammer"
)

func reason(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

func TestCharge(t *testing.T) {
	const limit = 16 << 20
	tests := map[string]struct {
		others int64 // held by another account
		charge []int64
		want   Reason
	}{
		"nothing":                      {charge: []int64{0}},
		"a usual request":              {charge: []int64{4 << 10, 1 << 10}},
		"all that one may have":        {charge: []int64{14<<20 - 1}},
		"in parts":                     {charge: []int64{7 << 20, 7<<20 - 1}},
		"too large":                    {charge: []int64{14<<20 + 1}, want: TooLarge},
		"too large in parts":           {charge: []int64{7 << 20, 7 << 20, 1}, want: TooLarge},
		"too large for any number":     {charge: []int64{1, math.MaxInt64}, want: TooLarge},
		"beside others":                {others: 8 << 20, charge: []int64{6<<20 - 1}},
		"too much beside others":       {others: 8 << 20, charge: []int64{6<<20 + 1}, want: Busy},
		"a small one beside large":     {others: 14 << 20, charge: []int64{1<<20 - 1}},
		"not small any more":           {others: 14 << 20, charge: []int64{1 << 20, 1}, want: Busy},
		"little room left is given":    {others: 14 << 20, charge: []int64{1<<20 - 2, 1}},
		"too large also beside others": {others: 14 << 20, charge: []int64{limit}, want: TooLarge},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := New(limit)
			if tt.others > 0 {
				other := b.Open()
				defer other.Close()
				if err := other.Charge(tt.others); err != nil {
					t.Fatal(err)
				}
			}
			a := b.Open()
			defer a.Close()
			var err error
			for _, n := range tt.charge {
				if err != nil {
					t.Fatalf("refused before the last charge: %v", err)
				}
				err = a.Charge(n)
			}
			if got := reason(err); got != tt.want {
				t.Errorf("the last charge: %v, want reason %q", err, tt.want)
			}
			if b.Used() > b.Limit() || b.Peak() < b.Used() {
				t.Errorf("used %d, peak %d of %d", b.Used(), b.Peak(), b.Limit())
			}
			if again := a.Charge(1); reason(again) != tt.want || a.Refused() != nil && a.Refused().Reason != tt.want {
				t.Errorf("then: Charge %v, Refused %v, want reason %q", again, a.Refused(), tt.want)
			}
			if tt.want != "" && b.Refused(tt.want) != 1 {
				t.Errorf("%d refusals counted as %s, want 1", b.Refused(tt.want), tt.want)
			}
		})
	}
}

// Without a Budget nothing is bounded, and nothing needs to be asked for.
func TestNil(t *testing.T) {
	var b *Budget
	a := b.Open()
	if err := a.Charge(math.MaxInt64); err != nil {
		t.Error(err)
	}
	if got := a.Charged(); got != 0 {
		t.Errorf("charged %d", got)
	}
	if got := a.Refused(); got != nil {
		t.Error(got)
	}
	a.Close()
}

func TestChargeAfterClose(t *testing.T) {
	b := New(1 << 20)
	a := b.Open()
	if err := a.Charge(100); err != nil {
		t.Fatal(err)
	}
	a.Close()
	a.Close()
	if err := a.Charge(1); reason(err) != Ended {
		t.Errorf("Charge after Close: %v, want reason %q", err, Ended)
	}
}

// What a request held counts until a garbage collection has freed it, which the
// Budget begins itself where that is in the way.
func TestGarbage(t *testing.T) {
	b := New(8 << 20)
	for i := 0; i < 20; { // twenty times 4 MiB, one after the other
		a := b.Open()
		err := a.Charge(4 << 20)
		switch used := b.Used(); {
		case used > b.Limit():
			t.Fatalf("used %d of %d", used, b.Limit())
		case err == nil && used < 4<<20:
			t.Fatalf("used %d while a request holds 4 MiB", used)
		case err == nil:
			i++
		case reason(err) != Busy:
			t.Fatal(err)
		}
		a.Close()
		runtime.Gosched() // until the garbage collection that Close began has ended
	}
	awaitCollected(t, b)
}

// awaitCollected waits until nothing is counted any more.
func awaitCollected(t *testing.T, b *Budget) {
	t.Helper()
	for b.Used() != 0 {
		if t.Context().Err() != nil {
			t.Fatalf("used %d after all accounts were closed", b.Used())
		}
		runtime.GC() // the callback comes some time after
	}
}

// The limit is what the process leaves below the ceiling; what requests hold is
// not counted as the process's own.
func TestBeside(t *testing.T) {
	var process int64
	b := &Budget{ceiling: 400, least: 50, memory: func() int64 { return process }}
	collected := func(want int64) {
		t.Helper()
		b.collected()
		if got := b.Limit(); got != want {
			t.Errorf("process %d, used %d: limit %d, want %d", process, b.Used(), got, want)
		}
	}
	process = 100
	collected(300)
	process = 250 // policies are loaded
	collected(150)
	process = 600
	collected(50)
	process = 200 // policies are gone
	collected(200)

	b.used.Store(100) // requests hold 100
	process = 300
	collected(200)
	process = 280 // they were charged more than they need: not believed
	collected(200)
	process = 350 // they, or the process, need more than they were charged
	collected(150)
	b.used.Store(0)
	process = 200
	collected(200)
}

// A Budget of the process follows the heap.
func TestBesideHeap(t *testing.T) {
	b := Beside(1<<30, 1<<20)
	before := b.Limit()
	if before <= 1<<20 || before >= 1<<30 {
		t.Fatalf("limit %d of a process that needs little", before)
	}
	held := make([]byte, 64<<20)
	for b.Limit() > before-48<<20 {
		if t.Context().Err() != nil {
			t.Fatalf("limit %d after 64 MiB more are in use, was %d", b.Limit(), before)
		}
		runtime.GC()
	}
	runtime.KeepAlive(held)
}

// TestHammer: whatever happens at once, no more than the limit is given away, and
// all of it comes back.
func TestHammer(t *testing.T) {
	b := New(4 << 20)
	hammer.Run(8, 100, func(i, j int) {
		a := b.Open()
		for range 4 {
			_ = a.Charge(int64(1+i) << (j % 18))
		}
		if used := b.Used(); used > b.Limit() {
			t.Errorf("used %d of %d", used, b.Limit())
		}
		a.Close()
	})
	awaitCollected(t, b)
}

// The usual charge allocates nothing, and an Account is one allocation.
func TestAllocations(t *testing.T) {
	b := New(64 << 20)
	if n := hammer.Allocs(t, func() {
		a := b.Open()
		for range 10 {
			_ = a.Charge(1000)
		}
		a.Close()
	}); n > 1 {
		t.Errorf("a request takes %v allocations, want 1", n)
	}
}

func BenchmarkCharge(b *testing.B) {
	a := New(1 << 40).Open()
	for b.Loop() {
		_ = a.Charge(16)
	}
}
