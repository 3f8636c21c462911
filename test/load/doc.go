// Package load answers "what does a webhook cost over HTTPS?": it sends
// AdmissionReviews to one, as an API server would, checks every answer, and says
// how long they took and what the server's process used meanwhile.
//
// It is bounded: it sends to loopback addresses only, through no more than
// MaxConnections, no more than MaxRequests and for no longer than MaxTime.
//
// Beside it are floors, the plain servers that figures are compared with, and the
// policies that are measured, which benchmarks through an API server share.
//
// Command bench below it prints the table of `make bench-http`.
package load
