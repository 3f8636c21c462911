// Package webhookconfig says what mapd's webhook configurations have to contain: for which
// requests an API server calls mapd, by which entries, and what happens if mapd does not
// answer. Divide is where to start reading: it divides policies over entries, so that an
// outage of mapd reaches what policies match and nothing else.
//
// It writes nothing (internal/cluster/controllers does) and answers no review
// (pkg/webhook does, at the paths that the entries have).
package webhookconfig
