// Package webhook answers one question: how does the engine speak HTTPS to an
// API server?
//
// It decodes AdmissionReview requests, hands them to an Admitter, and answers
// with the smallest JSON Patch between the object that came and the object
// that was decided. Around that: limits on what is read, certificates that are
// replaced while serving, health, metrics, audit annotations, and a shutdown
// that lets requests under way finish. It does not know where policies come
// from, and it never decides anything itself.
//
// What an API server has to be told so that it calls is derived here as well:
// ReachOf says which requests a policy acts on by a binding, Divide divides policies
// over entries, and each of these has a path and is a webhook of the Configuration.
package webhook
