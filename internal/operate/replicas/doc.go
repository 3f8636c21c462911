// Package replicas answers "what do all replicas of mapd say?".
//
// It finds the replicas that API servers send reviews to, and asks each of them for its
// records, with a token that is of use there and nowhere else. Replicas behind a Service are reached
// by port-forwarding through the API server. A replica that does not answer is named, and
// takes nothing away from the answers of the others.
package replicas
