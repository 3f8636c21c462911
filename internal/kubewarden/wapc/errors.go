package wapc

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Reason says how a call failed.
type Reason string

const (
	// Failed: the guest said so. The text begins as policy-server's does.
	Failed Reason = "failed"
	// Trapped: the guest ended in the middle: a panic, an access beyond its memory,
	// a length that lies, a limit.
	Trapped Reason = "trapped"
	// TimedOut: the context was done first.
	TimedOut Reason = "timed-out"
	// NotInitialised: no instance could be made.
	NotInitialised Reason = "not-initialised"
	// NoMemory: the guests of this process, or this request, hold all they may.
	NoMemory Reason = "no-memory"
)

// Error is a call that failed. Its text is the same for the same module and input,
// and what a user of policy-server knows where policy-server has one for it.
type Error struct {
	Reason Reason
	text   string
	cause  error
}

func (e *Error) Error() string { return e.text }

func (e *Error) Unwrap() error { return e.cause }

const timedOut = "Policy execution interrupted because it exceeded the allowed execution time"

func failed(format string, args ...any) *Error {
	return &Error{Reason: Failed, text: "Guest call failure: " + fmt.Sprintf(format, args...)}
}

func interrupted(ctx context.Context) *Error {
	return &Error{Reason: TimedOut, text: timedOut, cause: context.Cause(ctx)}
}

// trap is panicked with by host functions, to end the guest.
type trap struct{ text string }

func (t trap) Error() string { return t.text }

func trapf(format string, args ...any) { panic(trap{fmt.Sprintf(format, args...)}) }

// trapText returns what ended a guest, without the stack of numbers that wazero adds.
func trapText(err error) string {
	var t trap
	if errors.As(err, &t) {
		return t.text
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(text, " (recovered by wazero)")
}
