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
	// Failed: the guest reported an error. The text begins as policy-server's does.
	Failed Reason = "failed"
	// Trapped: the guest was stopped by a panic, an access outside of its memory, a wrong length,
	// or a limit.
	Trapped Reason = "trapped"
	// TimedOut: the context was done before the guest answered.
	TimedOut Reason = "timed-out"
	// NotInitialised: no instance could be made.
	NotInitialised Reason = "not-initialised"
	// NoMemory: the guests of this process, or of this request, have used up their memory.
	NoMemory Reason = "no-memory"
)

// Error is a failed call. Its text depends on the module and the input only. Where policy-server
// has a text for the failure, the text is that one.
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

// trap is panicked with by host functions to stop the guest.
type trap struct{ text string }

func (t trap) Error() string { return t.text }

func trapf(format string, args ...any) { panic(trap{fmt.Sprintf(format, args...)}) }

// trapText returns the reason why a guest was stopped, without the stack trace that wazero adds.
func trapText(err error) string {
	var t trap
	if errors.As(err, &t) {
		return t.text
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSuffix(text, " (recovered by wazero)")
}
