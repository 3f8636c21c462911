package webhook

import (
	"context"
	"net/http"
	"time"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

// Tracer is given what reviews did. The client waits for its methods, so they must
// neither block nor take long. They must be safe for concurrent use.
type Tracer interface {
	// Context returns ctx with the trace that the header of a request belongs to, if any.
	Context(ctx context.Context, header http.Header) context.Context
	// Review is called with each review on which policies or mutators decided, once its
	// answer is made. ctx comes from Context. It must not retain what r points to.
	Review(ctx context.Context, r Reviewed)
}

// Reviewed is a review and what came of it.
type Reviewed struct {
	Request  *policy.Request
	Decision *engine.Decision
	// Code is the HTTP status: 200 if the review was decided, else as Handler.Review says.
	Code int
	// Start is when the review began to be decoded, Admitted when it was decoded, and Took
	// how long it took from Start until the answer was made.
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
