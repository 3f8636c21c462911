package wapc

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

const pageSize = 64 << 10

// accounts counts the memory of one guest: with the Runtime's other guests, and
// with the request that it runs for. It is the allocator that wazero asks.
type accounts struct {
	runtime *Runtime
	request interface{ Charge(int64) error } // nil: nobody
	held    int64                            // of the Runtime's
	first   int64                            // bytes of linear memory that are charged already
	stack   int                              // bytes of the stack that are charged
	full    bool
	over    error // the request's refusal
	buf     []byte
}

// bill lets a request pay for what the guest holds and will hold.
func (a *accounts) bill(host Host) error {
	payer, ok := host.(interface{ Charge(int64) error })
	if !ok {
		return nil
	}
	a.request = payer
	if a.over = payer.Charge(a.held); a.over != nil {
		return a.refused()
	}
	return nil
}

func (a *accounts) charge(n int64) bool {
	if a.request != nil {
		if a.over = a.request.Charge(n); a.over != nil {
			return false
		}
	}
	a.held += n
	if a.runtime.memory.Add(n) > a.runtime.options.AllMemory {
		a.runtime.memory.Add(-n)
		a.held -= n
		a.full = true
		return false
	}
	return true
}

func (a *accounts) free() {
	a.runtime.memory.Add(-a.held)
	a.held, a.buf = 0, nil
}

// Allocate implements experimental.MemoryAllocator. A guest has one memory.
func (a *accounts) Allocate(_, _ uint64) experimental.LinearMemory { return a }

// Reallocate returns the memory with a new size, or nil if there is no room.
func (a *accounts) Reallocate(size uint64) []byte {
	if size <= uint64(cap(a.buf)) && a.buf != nil {
		a.buf = a.buf[:size]
		return a.buf
	}
	room := max(size, uint64(len(a.buf))*5/4, uint64(a.first))
	if more := int64(room) - a.first; more > 0 && !a.charge(more) {
		return nil
	}
	a.first = 0
	old := a.buf
	a.buf = make([]byte, size, room)
	copy(a.buf, old)
	if old != nil {
		a.held -= int64(cap(old))
		a.runtime.memory.Add(-int64(cap(old)))
	}
	return a.buf
}

// maxStack bounds the stack of a guest, in bytes; policy-server's has 512 KiB. What
// wazero does is to double it up to 100 MB.
const maxStack = 8 << 20

// chargeStack charges the stack of what runs, and ends a guest whose stack is too
// large.
func (a *accounts) chargeStack(f api.Function) {
	v := reflect.ValueOf(f)
	if v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		v = v.Elem().FieldByName("stack")
	}
	if v.Kind() != reflect.Slice {
		trapf("the guest's stack cannot be measured: wazero's %T has none", f)
	}
	n := v.Len() * int(v.Type().Elem().Size())
	if n > maxStack {
		trapf("stack overflow")
	}
	if n > a.stack && !a.charge(int64(n-a.stack)) {
		panic(a.refused())
	}
	a.stack = max(a.stack, n)
}

// Free implements experimental.LinearMemory; the instance's end frees all.
func (a *accounts) Free() {}

// refused says whose memory is used up.
func (a *accounts) refused() *Error {
	if a.over != nil {
		return &Error{Reason: NoMemory, text: "the request has no room for the policy's memory: " + a.over.Error(), cause: a.over}
	}
	return &Error{Reason: NoMemory, text: fmt.Sprintf("policies hold %d bytes of memory already, all they may", a.runtime.options.AllMemory)}
}

// explain returns what a call failed with.
func (a *accounts) explain(ctx context.Context, err error) error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case ctx.Err() != nil:
		return interrupted(ctx)
	case a.over != nil || a.full:
		return a.refused()
	}
	return &Error{Reason: Trapped, text: "Guest call failure: " + trapText(err)}
}

// explainInit is explain for an instance that is not there yet.
func (a *accounts) explainInit(ctx context.Context, err error) error {
	var e *Error
	if errors.As(a.explain(ctx, err), &e) && e.Reason != Trapped {
		return e
	}
	return &Error{Reason: NotInitialised, text: "the guest cannot be initialised: " + trapText(err)}
}
