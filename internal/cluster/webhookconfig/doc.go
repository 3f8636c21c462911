// Package webhookconfig answers one question: what do mapd's webhook configurations have to
// contain? That is: for which requests API servers call mapd, by which entries, and what happens
// if mapd does not answer. Start reading at Divide: it divides policies over entries, so that an
// outage of mapd affects only requests that policies match.
//
// The package writes nothing (internal/cluster/controllers does) and answers no review
// (pkg/webhook does, at the paths of the entries).
package webhookconfig
