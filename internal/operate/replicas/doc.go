// Package replicas collects records from all replicas of mapd.
//
// It finds the replicas that API servers send reviews to, and asks each of them for its records,
// with a token that nobody else accepts. Replicas behind a Service are reached by port-forwarding
// through the API server. If a replica does not answer, its Answer has the error, and the answers
// of the others are still returned.
package replicas
