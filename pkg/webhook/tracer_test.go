package webhook

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mapd-project/mapd/pkg/engine"
	"github.com/mapd-project/mapd/pkg/policy"
)

// traced keeps the results of the reviews that it is given.
type traced struct {
	t       *testing.T
	results []string
}

type tracedKey struct{}

func (*traced) Context(ctx context.Context, h http.Header) context.Context {
	return context.WithValue(ctx, tracedKey{}, h.Get("Traceparent"))
}

func (tr *traced) Review(ctx context.Context, r Reviewed) {
	if got := ctx.Value(tracedKey{}); got != "the caller's" {
		tr.t.Errorf("trace %v", got)
	}
	if r.Request.UID == "" || r.Admitted.Before(r.Start) || r.Start.Add(r.Took).Before(r.Admitted) {
		tr.t.Errorf("%+v", r)
	}
	tr.results = append(tr.results, r.Result())
}

// A Tracer is given each review that was decided, or not in time, and no other.
func TestTracer(t *testing.T) {
	review := string(usualReviews(t)["create"])
	for _, tt := range []struct {
		name, body string
		decision   engine.Decision
		want       string
	}{
		{name: "allowed", body: review, want: "allowed"},
		{name: "mutated", body: review, decision: engine.Decision{Changed: true}, want: "mutated"},
		{name: "denied", body: review, decision: engine.Decision{Status: &metav1.Status{Code: http.StatusForbidden}}, want: "denied"},
		{name: "not in time", body: review, decision: engine.Decision{Status: &metav1.Status{Code: http.StatusGatewayTimeout}}, want: "timeout"},
		{name: "no review", body: "{}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tr := &traced{t: t}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			h := NewHandler(Options{Tracer: tr, Admitter: admitFunc(func(ctx context.Context, req *policy.Request) *engine.Decision {
				if tt.want == "timeout" {
					cancel() // no sooner: the time may end while the review is read
					<-ctx.Done()
				}
				d := tt.decision
				d.Object = req.Object
				return &d
			})})
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mutate", strings.NewReader(tt.body))
			r.Header = http.Header{"Content-Type": {"application/json"}, "Traceparent": {"the caller's"}}
			h.ServeHTTP(httptest.NewRecorder(), r)
			if got := strings.Join(tr.results, " "); got != tt.want {
				t.Errorf("results %q, want %q", got, tt.want)
			}
		})
	}
}
