package memory

import "fmt"

// Reason says why an Account was refused a charge. Its text is the label of a
// metric.
type Reason string

const (
	// TooLarge: the request needs more than one request may have, so it can never
	// be answered.
	TooLarge Reason = "too-large"
	// Busy: other requests hold the memory; the same request may fit later.
	Busy Reason = "busy"
	// Ended: the Account was closed, so nobody waits for the result.
	Ended Reason = "ended"
)

// Error is the refusal of a charge. It is about the request as a whole and never
// a policy's fault.
type Error struct {
	Reason Reason
	// Limit is the number of bytes that one request may hold, if Reason is
	// TooLarge.
	Limit int64
}

func (e *Error) Error() string {
	switch e.Reason {
	case TooLarge:
		return fmt.Sprintf("memory: the request needs more than %d MiB, the most that one request may have", e.Limit>>20)
	case Busy:
		return "memory: other requests hold what requests may have together; try again"
	}
	return "memory: the request has ended"
}
