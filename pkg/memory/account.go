package memory

import (
	"math"
	"sync"
	"sync/atomic"
)

// step is the least that an Account takes from its Budget at a time. A usual request takes it
// once, so that its charges do not touch the counters that all requests share.
const step = 32 << 10

// Account is what one request holds of a Budget. It may be used from any
// goroutine. A nil Account bounds nothing.
type Account struct {
	budget  *Budget
	charged atomic.Int64
	granted atomic.Int64 // a charge above it takes more from the budget; it is ended after a refusal and after Close
	err     atomic.Pointer[Error]

	// shadow says that other requests have precedence, see Shadow.
	shadow bool

	mu     sync.Mutex
	held   int64 // taken from the budget
	joined int64 // taken by Accounts that were joined
}

// ended is the value of Account.granted after a refusal or Close. It is less than any
// charge.
const ended = math.MinInt64

// Charge asks for n more bytes before they are allocated. It returns an *Error if the request
// must end; every further charge returns the same error. Charges need not be exact, but must
// not be far below what is allocated in the end. That includes garbage, since only the garbage
// collector returns it.
//
// Charge after Close returns an *Error too, so that goroutines that still work on an abandoned
// request end.
func (a *Account) Charge(n int64) error {
	if a == nil || n <= 0 {
		return nil
	}
	if charged := a.charged.Add(n); charged > a.granted.Load() || charged < 0 {
		return a.grow()
	}
	return nil
}

// Refused returns the *Error that Charge returned, or nil if no charge was refused.
func (a *Account) Refused() *Error {
	if a == nil {
		return nil
	}
	return a.err.Load()
}

// Charged returns how many bytes the request was charged.
func (a *Account) Charged() int64 {
	if a == nil {
		return 0
	}
	return a.charged.Load()
}

func (a *Account) grow() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.err.Load(); err != nil {
		return err
	}
	charged := a.charged.Load()
	if charged < 0 {
		charged = math.MaxInt64 // more than can be counted
	}
	want := charged - a.held
	if want <= 0 {
		return nil // another goroutine has taken enough for this Account
	}
	took, reason := a.take(want)
	if reason == Busy && !a.shadow && a.budget.collect() {
		took, reason = a.take(want)
	}
	switch {
	case reason == "":
	case a.shadow:
		return a.end(&Error{Reason: reason, Limit: a.budget.most(math.MaxInt64, true)})
	default:
		return a.end(a.budget.refuse(reason))
	}
	a.held += took
	a.granted.Store(a.held)
	return nil
}

// take takes at least want bytes from the budget, and more at once for requests that grow in
// small parts. a.mu is held.
func (a *Account) take(want int64) (took int64, _ Reason) {
	took = max(want, step, a.held/4)
	if a.budget.take(a.held, took, a.shadow) == "" {
		return took, ""
	}
	return want, a.budget.take(a.held, want, a.shadow)
}

// end makes all further charges return err. a.mu is held.
func (a *Account) end(err *Error) error {
	a.err.Store(err)
	a.granted.Store(ended)
	return err
}

// Close gives back what the request holds. It may be called more than once.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err.Load() == nil {
		_ = a.end(&errEnded)
	}
	if held := a.held + a.joined; held > 0 {
		a.budget.release(held)
		a.held, a.joined = 0, 0
	}
}

var errEnded = Error{Reason: Ended}

// Shadow returns an Account of the same Budget for work whose result the request does not need.
// A refused charge of it does not end a and is not counted, and it may use only half of the
// Budget. The caller must call Join with it; what it holds by then is released when a is
// closed.
func (a *Account) Shadow() *Account {
	if a == nil {
		return nil
	}
	return &Account{budget: a.budget, shadow: true}
}

// Join ends an Account that Shadow returned. Its charges stay in the Budget until a is closed,
// since the memory may be in use, but do not count against the limit of one request.
func (a *Account) Join(shadow *Account) {
	if a == nil {
		return
	}
	shadow.mu.Lock()
	held := shadow.held
	if shadow.held = 0; shadow.err.Load() == nil {
		_ = shadow.end(&errEnded)
	}
	shadow.mu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err.Load() == &errEnded {
		a.budget.release(held)
		return
	}
	a.joined += held
}
