package install

import (
	"context"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/mapd-project/mapd/internal/cluster/webhookconfig"
	"github.com/mapd-project/mapd/pkg/api"
)

// probeName is the name of the policy that Probe pretends to create.
const probeName = "mapd-probe"

// Probe tests whether the API server reaches mapd. It requests the creation, as a dry run, of a
// policy whose expression cannot compile. The API server itself would accept it, so a refusal
// proves that the request reached mapd's validating webhook through the Service and TLS. Any
// other answer is a *ProbeError. Nothing is ever stored.
func Probe(ctx context.Context, d dynamic.Interface) error {
	_, err := d.Resource(api.OwnPolicies).Create(ctx, probePolicy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return classify(err)
}

// probePolicy has a paramKind, because only policies that read params go to the entry with
// failurePolicy Fail. If the webhook cannot be reached, the request then fails with the reason.
func probePolicy() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": api.OwnGroup + "/v1",
		"kind":       api.PolicyKind,
		"metadata":   map[string]any{"name": probeName},
		"spec": map[string]any{
			"failurePolicy":      "Ignore",
			"reinvocationPolicy": "Never",
			"paramKind":          map[string]any{"apiVersion": "v1", "kind": "ConfigMap"},
			"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
				"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"configmaps"},
			}}},
			"mutations": []any{map[string]any{
				"patchType":          "ApplyConfiguration",
				"applyConfiguration": map[string]any{"expression": "mapd_probe"},
			}},
		},
	}}
}

// ProbeReason says where a probe got lost.
type ProbeReason string

// The reasons, in the order of the way from here to mapd.
const (
	NoServer      ProbeReason = "NoServer"      // the API server did not answer
	Forbidden     ProbeReason = "Forbidden"     // this user may not create policies
	NoKind        ProbeReason = "NoKind"        // the CustomResourceDefinition is missing
	Refused       ProbeReason = "Refused"       // another webhook or policy was in the way
	NotRegistered ProbeReason = "NotRegistered" // nobody refused
	NoService     ProbeReason = "NoService"     // there is no such Service
	Unreachable   ProbeReason = "Unreachable"   // no way to it
	NoReplica     ProbeReason = "NoReplica"     // nobody listens
	Timeout       ProbeReason = "Timeout"       // no answer in time
	Untrusted     ProbeReason = "Untrusted"     // the certificate is not accepted
	WrongAnswer   ProbeReason = "WrongAnswer"   // what answered is not mapd, or not in order
	Unknown       ProbeReason = "Unknown"       // anything else
)

// ProbeError says why the API server's way to mapd is not open.
type ProbeError struct {
	Reason ProbeReason
	Fact   string // what happened, with the server's words
	Advice string // what to do
	Err    error  // what the API server answered; nil if it accepted
}

func (e *ProbeError) Error() string { return e.Fact }

func (e *ProbeError) Unwrap() error { return e.Err }

// permanent tells that waiting does not help.
func (e *ProbeError) permanent() bool { return e.Reason == Forbidden }

var (
	refusedBy = regexp.MustCompile(`^admission webhook "([^"]+)" denied the request`)
	failedAt  = regexp.MustCompile(`failed calling webhook "([^"]+)": (?s:(.*))`)
)

// ours tells mapd's webhooks by their names.
func ours(webhookName string) bool {
	return strings.HasSuffix(webhookName, "."+webhookconfig.ValidationName)
}

// classify reads the answer to the probe. The texts that it looks for are those of
// k8s.io/apiserver pkg/admission/plugin/webhook (ToStatusErr; ErrCallingWebhook
// inside an InternalError), of its resolver of Services, and of Go's net and
// crypto/tls inside them.
func classify(err error) error {
	if err == nil {
		return &ProbeError{NotRegistered, "a broken policy was accepted: the API server does not ask mapd",
			"mapd registers its webhook when a replica is ready: see the Deployment and its log", nil}
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		if ue := (*url.Error)(nil); errors.As(err, &ue) {
			return &ProbeError{NoServer, err.Error(), "see whether the API server is up and the kubeconfig names it", err}
		}
		return &ProbeError{Unknown, err.Error(), "", err}
	}
	text, exempt := status.Status().Message, "exempt "+api.OwnPolicies.GroupResource().String()+" from it"
	if m := refusedBy.FindStringSubmatch(text); m != nil {
		if ours(m[1]) {
			return nil
		}
		return &ProbeError{Refused, text, exempt, err}
	}
	if m := failedAt.FindStringSubmatch(text); m != nil {
		if !ours(m[1]) {
			return &ProbeError{Refused, text, "that webhook does not answer and its failurePolicy is Fail; repair it or " + exempt, err}
		}
		reason, advice := explainUnreachable(m[2])
		return &ProbeError{reason, text, advice, err}
	}
	switch {
	case apierrors.IsUnauthorized(err):
		return &ProbeError{Forbidden, text, "the API server does not know this user; see the kubeconfig", err}
	case apierrors.IsForbidden(err) && strings.Contains(text, "cannot create resource"):
		return &ProbeError{Forbidden, text, "needs: create " + api.OwnPolicies.GroupResource().String(), err}
	case apierrors.IsForbidden(err), strings.Contains(text, "denied request"):
		return &ProbeError{Refused, text, exempt, err}
	case apierrors.IsNotFound(err):
		return &ProbeError{NoKind, api.OwnPolicies.GroupResource().String() + " is not served", "mapd install", err}
	}
	return &ProbeError{Unknown, text, "", err}
}

// Advice is what to do about an error of Apply or Wait; empty if nothing is known.
func Advice(err error) string {
	if pe := (*ProbeError)(nil); errors.As(err, &pe) {
		return pe.Advice
	}
	if oe := (*OwnedError)(nil); errors.As(err, &oe) {
		return "only one mapd can have them: uninstall that one, or take them over with --adopt"
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	s := status.Status()
	if m := failedAt.FindStringSubmatch(s.Message); m != nil && ours(m[1]) {
		return "mapd does not answer, and a policy with failurePolicy Fail asks for it: mapd uninstall makes way and keeps the policies"
	}
	if s.Details != nil && slices.ContainsFunc(s.Details.Causes, func(c metav1.StatusCause) bool { return c.Type == metav1.CauseTypeFieldManagerConflict }) {
		return "somebody else has set these fields; --force-conflicts takes them over"
	}
	return ""
}

// explainUnreachable returns why a call to mapd failed, and what to do.
func explainUnreachable(cause string) (reason ProbeReason, advice string) {
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(cause, p) })
	}
	switch {
	case has("x509:", "tls: "):
		return Untrusted, "the certificate that answers is not one that caBundle vouches for: see in mapd's log whether it may write the configuration, and what else answers at that address"
	case has(`service "`) && has("not found"), has("no service port"):
		return NoService, "mapd install"
	case has("no endpoints available"):
		return NoReplica, "no replica of mapd is ready: see its Pods and their logs"
	case has("connection refused"):
		return NoReplica, "nothing listens there: see whether mapd's Pods are ready"
	case has("deadline exceeded", "Client.Timeout", "i/o timeout"):
		return Timeout, "see whether a firewall or NetworkPolicy lets the control plane reach port 8443 of mapd's Pods, and whether they are short of CPU"
	case has("received invalid webhook response", "could not find the requested resource", "an error on the server", "gave HTTP response"):
		return WrongAnswer, "see mapd's log; if nothing is there, something else answers at that address"
	}
	return Unreachable, "see whether the control plane's network reaches mapd's Service"
}
