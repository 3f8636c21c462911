package webhook

import (
	"context"
	"net/netip"
)

// Callers decides who may send reviews. It is called for each review, by several goroutines at
// a time.
type Callers interface {
	// Authenticate returns nil if the sender of a request may send reviews to the path. A
	// *ReviewError has the HTTP status of the refusal; any other error is a 401. From is as for
	// Records.Authorize; token is the bearer token, or "".
	//
	// The Handler calls may, unless it is nil, when it has read the review: an error says why
	// the sender may not send reviews of an API group, and is a 403.
	Authenticate(ctx context.Context, from netip.Prefix, token, path string) (may func(group string) error, err error)
}
