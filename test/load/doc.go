// Package load measures what a webhook costs over HTTPS: it sends AdmissionReviews, as an API
// server would, checks every answer, and reports the times and what the server's process used
// meanwhile.
//
// It is bounded: it sends to loopback addresses only, through no more than MaxConnections, no more
// than MaxRequests and for no longer than MaxTime.
//
// It also has floors, which are minimal webhooks to compare figures with, and the policies to
// measure, which benchmarks through an API server use, too.
//
// Command bench below it prints the table of `make bench-http`.
package load
