package install

import (
	"context"
	"errors"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Most texts are what an API server of 1.37.1 answered to the probe, each brought
// about on purpose; addresses, ports and names of webhooks were changed. Those that
// are marked are not from a server: they follow the sources of Kubernetes and Go, or
// were made up for contrast.
func TestClassify(t *testing.T) {
	denied := func(code int32, reason metav1.StatusReason, message string) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
	}
	failing := func(webhook, cause string) error {
		return denied(500, metav1.StatusReasonInternalError, `Internal error occurred: failed calling webhook "`+webhook+`": `+cause)
	}
	const ours = "params.validate.mapd.dev"
	const post = `failed to call webhook: Post "https://mapd.mapd-system.svc:443/validate?timeout=5s": `
	for _, tt := range []struct {
		name string
		err  error
		want ProbeReason // empty: reached
	}{
		{"refused by mapd", denied(422, metav1.StatusReasonInvalid, `admission webhook "params.validate.mapd.dev" denied the request: no way`), ""},
		{"accepted", nil, NotRegistered},
		{"refused by another", denied(422, metav1.StatusReasonInvalid, `admission webhook "other.example.com" denied the request: no way`), Refused},
		{"refused by one with a similar name", denied(422, metav1.StatusReasonInvalid, `admission webhook "evilmapd.dev" denied the request: no way`), Refused}, // marked
		{"refused by a policy", denied(422, metav1.StatusReasonInvalid, `mutatingadmissionpolicies.admissionregistration.mapd.dev "mapd-probe" is forbidden: ValidatingAdmissionPolicy 'nope' with binding 'nope' denied request: only on Tuesdays`), Refused},
		{"another is down", failing("other.example.com", `failed to call webhook: Post "https://localhost:1/validate?timeout=1s": dial tcp 127.0.0.1:1: connect: connection refused`), Refused},
		{"may not create", denied(403, metav1.StatusReasonForbidden, `mutatingadmissionpolicies.admissionregistration.mapd.dev is forbidden: User "viewer" cannot create resource "mutatingadmissionpolicies" in API group "admissionregistration.mapd.dev" at the cluster scope`), Forbidden},
		{"unknown user", denied(401, metav1.StatusReasonUnauthorized, "Unauthorized"), Forbidden},                         // marked
		{"no kind", denied(404, metav1.StatusReasonNotFound, "the server could not find the requested resource"), NoKind}, // marked
		{"nobody listens", failing(ours, post+"dial tcp 10.0.0.10:443: connect: connection refused"), NoReplica},
		{"no endpoints", failing(ours, post+`no endpoints available for service "mapd"`), NoReplica}, // marked
		{"unknown authority", failing(ours, post+"tls: failed to verify certificate: x509: certificate signed by unknown authority"), Untrusted},
		{"another name", failing(ours, post+"tls: failed to verify certificate: x509: certificate is valid for other, not mapd.mapd-system.svc"), Untrusted},
		{"no host", failing(ours, `failed to call webhook: Post "https://nowhere.invalid:443/validate?timeout=5s": dial tcp: lookup nowhere.invalid on 10.0.0.2:53: no such host`), Unreachable},
		{"no answer", failing(ours, post+"context deadline exceeded"), Timeout},
		{"no connection", failing(ours, post+"dial tcp 10.0.0.10:443: i/o timeout"), Timeout}, // marked
		{"no service", failing(ours, post+`service "mapd" not found`), NoService},
		{"no port", failing(ours, `failed to call webhook: Post "https://mapd.mapd-system.svc:444/?timeout=1s": no service port 444 found for service "mapd"`), NoService},
		{"not found there", failing(ours, "failed to call webhook: the server could not find the requested resource"), WrongAnswer},
		{"error there", failing(ours, `failed to call webhook: an error on the server ("") has prevented the request from succeeding`), WrongAnswer},
		{"no review", failing(ours, "received invalid webhook response: webhook response was absent"), WrongAnswer},
		{"no TLS", failing(ours, post+"http: server gave HTTP response to HTTPS client"), WrongAnswer},
		{"no API server", &url.Error{Op: "Post", URL: "https://127.0.0.1:1", Err: errors.New("connect: connection refused")}, NoServer}, // marked
		{"anything else", denied(429, metav1.StatusReasonTooManyRequests, "the server has received too many requests"), Unknown},        // marked
		{"no time", context.DeadlineExceeded, Unknown}, // marked
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := classify(tt.err)
			if tt.want == "" {
				if err != nil {
					t.Fatalf("not reached: %v", err)
				}
				return
			}
			var pe *ProbeError
			if !errors.As(err, &pe) {
				t.Fatalf("error %v, want a *ProbeError", err)
			}
			if pe.Reason != tt.want {
				t.Errorf("reason %s, want %s", pe.Reason, tt.want)
			}
			if pe.Fact == "" || pe.Advice == "" && pe.Reason != Unknown {
				t.Errorf("says %q, advises %q", pe.Fact, pe.Advice)
			}
			if tt.err != nil && !errors.Is(err, tt.err) {
				t.Error("the server's error is lost")
			}
		})
	}
}
