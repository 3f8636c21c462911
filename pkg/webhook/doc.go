// Package webhook answers one question: how does an API server call the engine over HTTPS?
//
// It decodes AdmissionReview requests, passes them to an Admitter, and responds with the
// smallest JSON Patch from the object of the request to the object of the decision. It also has
// limits on what it reads, certificates that can be replaced while serving, health checks,
// metrics, audit annotations, and a shutdown that finishes requests that have begun. It does
// not know where policies come from, and decides nothing itself.
//
// internal/cluster/webhookconfig makes the entries of the webhook configuration, each with one
// of the paths here.
package webhook
