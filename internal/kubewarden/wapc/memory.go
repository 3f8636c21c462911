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

// accounts charges the memory of one guest to the Runtime and to the request for which it runs.
// It is also wazero's memory allocator for the guest.
type accounts struct {
	runtime *Runtime
	request interface{ Charge(int64) error } // nil: no request is charged
	held    int64                            // charged to the Runtime, in bytes
	first   int64                            // bytes of linear memory that were charged in advance
	stack   int                              // bytes of stack that were charged
	full    bool
	over    error // the refusal of the request's account
	buf     []byte
}

// bill charges to the request what the guest holds now, and later what it allocates.
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

// Allocate implements experimental.MemoryAllocator. It is called once, since a guest has one
// memory.
func (a *accounts) Allocate(_, _ uint64) experimental.LinearMemory { return a }

// Reallocate returns the memory with a new size, or nil if the limits do not allow it.
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

// maxStack bounds the stack of a guest, in bytes. wazero itself would double a stack up to 100
// MB; policy-server's limit is 512 KiB.
const maxStack = 8 << 20

// chargeStack charges the stack of the running function, and stops a guest whose stack is too
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

// Free implements experimental.LinearMemory. It does nothing: closing the instance frees the
// memory.
func (a *accounts) Free() {}

// refused returns the error that says whose memory is used up.
func (a *accounts) refused() *Error {
	if a.over != nil {
		return &Error{Reason: NoMemory, text: "the request has no room for the policy's memory: " + a.over.Error(), cause: a.over}
	}
	return &Error{Reason: NoMemory, text: fmt.Sprintf("policies hold %d bytes of memory already, all they may", a.runtime.options.AllMemory)}
}

// explain returns the *Error for a failure of the guest.
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

// explainInit is explain for a failure during initialisation.
func (a *accounts) explainInit(ctx context.Context, err error) error {
	var e *Error
	if errors.As(a.explain(ctx, err), &e) && e.Reason != Trapped {
		return e
	}
	return &Error{Reason: NotInitialised, text: "the guest cannot be initialised: " + trapText(err)}
}
