package webhook

import (
	"context"
	"net/http"
	"time"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Tracer records traces of reviews. The client waits for its methods, so they must neither
// block nor take long. They must be safe for concurrent use.
type Tracer interface {
	// Context returns ctx with the trace that the header of a request refers to, if any.
	Context(ctx context.Context, header http.Header) context.Context
	// Review is called with each review that policies or mutators decided, once its response is
	// made. ctx comes from Context. Review must not retain anything that r points to.
	Review(ctx context.Context, r Reviewed)
}

// Reviewed is a review and its result.
type Reviewed struct {
	Request  *policy.Request
	Decision *engine.Decision
	// Code is the HTTP status: 200 if the review was decided, else as for Handler.Review.
	Code int
	// Start is when decoding of the review began, Admitted when it ended, and Took the time
	// from Start until the response was made.
	Start, Admitted time.Time
	Took            time.Duration
}

// Result returns the label result of mapd_request_duration_seconds.
func (r Reviewed) Result() string {
	switch r.Code {
	case http.StatusOK:
		return decided(r.Decision)
	case http.StatusGatewayTimeout:
		return "timeout"
	}
	return "memory"
}
