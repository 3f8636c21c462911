package memory

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"
)

// Budget bounds the memory of all requests of a process. A nil Budget bounds
// nothing.
type Budget struct {
	limit atomic.Int64
	// used is what open Accounts hold, and what closed ones held and the garbage collector has
	// not freed yet.
	used, peak     atomic.Int64
	tooLarge, busy atomic.Int64 // refusals

	ceiling, least int64        // of a Budget made by Beside
	memory         func() int64 // nil if the limit is fixed

	collecting sync.Mutex // held during a garbage collection that a Budget began

	mu   sync.Mutex
	rest int64 // bytes that the process needs beside requests
	// left counts the bytes that Accounts ever left, freed those of them that a
	// garbage collection has freed since, and mark is what left was when the
	// last collection had ended.
	left, freed, mark int64
}

// New returns a Budget of limit bytes.
func New(limit int64) *Budget {
	b := &Budget{}
	b.limit.Store(limit)
	b.watch()
	return b
}

// Beside returns a Budget whose limit is ceiling minus the memory that the process needs beside
// requests, but not below least. The limit follows what the garbage collector finds in use, so
// that it shrinks when policies are loaded.
func Beside(ceiling, least int64) *Budget {
	b := &Budget{ceiling: ceiling, least: least, memory: inUse}
	b.measure()
	b.watch()
	return b
}

// Open returns the Account of a new request. The caller must close it.
func (b *Budget) Open() *Account {
	if b == nil {
		return nil
	}
	return &Account{budget: b}
}

// Limit returns how many bytes requests may hold together at present.
func (b *Budget) Limit() int64 { return b.limit.Load() }

// Used returns how many bytes open requests hold, and ended ones held that the garbage
// collector has not freed yet.
func (b *Budget) Used() int64 { return b.used.Load() }

// Peak returns the largest value of Used since the Budget was made.
func (b *Budget) Peak() int64 { return b.peak.Load() }

// Refused returns how many charges were refused for a reason.
func (b *Budget) Refused(r Reason) int64 {
	switch r {
	case TooLarge:
		return b.tooLarge.Load()
	case Busy:
		return b.busy.Load()
	}
	return 0
}

// small is what a usual request needs. Such requests have an eighth of the Budget
// for themselves, so that a few large ones do not keep them out.
const small = 1 << 20

// most returns how far the use may grow for a request that then holds n bytes, or for a shadow
// Account.
func (b *Budget) most(n int64, shadow bool) int64 {
	limit := b.limit.Load()
	switch {
	case shadow:
		limit /= 2
	case n > small:
		limit -= limit / 8
	}
	return limit
}

// take takes n bytes for an Account that already has granted bytes. It returns the reason of a
// refusal.
func (b *Budget) take(granted, n int64, shadow bool) Reason {
	if n > math.MaxInt64-granted || granted+n > b.most(granted+n, shadow) {
		return TooLarge
	}
	most := b.most(granted+n, shadow)
	for {
		used := b.used.Load()
		if n > most-used {
			return Busy
		}
		if b.used.CompareAndSwap(used, used+n) {
			for peak := b.peak.Load(); used+n > peak && !b.peak.CompareAndSwap(peak, used+n); peak = b.peak.Load() {
			}
			return ""
		}
	}
}

// refuse counts a refusal and returns its error.
func (b *Budget) refuse(reason Reason) *Error {
	if reason == TooLarge {
		b.tooLarge.Add(1)
		return &Error{Reason: reason, Limit: b.most(math.MaxInt64, false)}
	}
	b.busy.Add(1)
	return &Error{Reason: reason}
}

// release takes back n bytes of a closed Account. They still count as used until a garbage
// collection.
func (b *Budget) release(n int64) {
	b.mu.Lock()
	b.left += n
	garbage := b.left - b.freed
	b.mu.Unlock()
	if garbage > b.limit.Load()/2 && b.collecting.TryLock() {
		go func() {
			defer b.collecting.Unlock()
			b.collectNow()
		}()
	}
}

// free subtracts from used what was released until left was at. b.mu is held.
func (b *Budget) free(at int64) {
	if at > b.freed {
		b.used.Add(b.freed - at)
		b.freed = at
	}
}

// collect runs a garbage collection if closed Accounts have left much memory, and reports
// whether it did. Usually the garbage collector runs often enough by itself, but not if the
// Budget is small beside the heap.
func (b *Budget) collect() bool {
	b.mu.Lock()
	at := b.left
	much := at-b.freed > b.limit.Load()/4
	b.mu.Unlock()
	if !much {
		return false // collecting more often would cost more than it frees
	}
	b.collecting.Lock()
	defer b.collecting.Unlock()
	b.mu.Lock()
	done := b.freed >= at // by another goroutine in the meantime
	b.mu.Unlock()
	if !done {
		b.collectNow()
	}
	return true
}

// collectNow frees the memory of closed Accounts. b.collecting is held.
func (b *Budget) collectNow() {
	b.mu.Lock()
	at := b.left
	b.mu.Unlock()
	runtime.GC()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free(at)
}

// collected is called after each garbage collection. The collection may have
// begun at any time since the one before it ended, so it has freed for certain
// only what had been left by then.
func (b *Budget) collected() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.measure()
	b.free(b.mark)
	b.mark = b.left
}

// measure adapts the limit to what the process needs beside requests. b.mu is
// held.
func (b *Budget) measure() {
	if b.memory == nil {
		return
	}
	// What requests held when the memory was measured is not known exactly. While they hold
	// little the error is small; while they hold much, only a measurement that raises rest is
	// used.
	requests := b.used.Load() - (b.mark - b.freed)
	rest := b.memory() - requests
	if requests <= b.limit.Load()/8 || rest > b.rest {
		b.rest = max(rest, 0)
	}
	b.limit.Store(max(b.ceiling-b.rest, b.least))
}

// watch calls collected after each garbage collection, until b itself is collected.
func (b *Budget) watch() {
	w := weak.Make(b)
	var arm func()
	arm = func() {
		// An object that nothing refers to is finalized by the next collection.
		runtime.SetFinalizer(new(sentinel), func(*sentinel) {
			if b := w.Value(); b != nil {
				b.collected()
				arm()
			}
		})
	}
	arm()
}

// sentinel is large enough not to share its memory with other small objects.
type sentinel struct{ _ [4]*byte }
