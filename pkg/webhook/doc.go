// Package webhook answers one question: how does the engine speak HTTPS to an
// API server?
//
// It decodes AdmissionReview requests, hands them to an Admitter, and answers
// with the smallest JSON Patch from the object of the request to the object
// that was decided. Around that it has limits on what it reads, certificates
// that can be replaced while serving, health, metrics, audit annotations, and a
// shutdown that lets requests under way finish. It does not know where policies
// come from, and it decides nothing itself.
//
// The entries of the webhook configuration, each with one of the paths here, are made by
// internal/cluster/webhookconfig.
package webhook
