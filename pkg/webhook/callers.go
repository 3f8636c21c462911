package webhook

import (
	"context"
	"net/netip"
)

// Callers decides who may send reviews. It is asked for each review, several at a time.
type Callers interface {
	// Authenticate returns nil if the sender of a request may send reviews to the path. A
	// *ReviewError has the HTTP status of the refusal; any other error is a 401. From is as
	// for Records.Authorize; token is the bearer token, or "".
	//
	// The function, unless it is nil, is called when the review has been read: it returns
	// why the sender may not ask about resources of an API group, a refusal with status 403.
	Authenticate(ctx context.Context, from netip.Prefix, token, path string) (may func(group string) error, err error)
}
