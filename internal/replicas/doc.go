// Package replicas answers "what do all replicas of mapd say?".
//
// It finds the replicas that API servers send reviews to, and asks each of them for its
// records with the rights of the user who calls it. Replicas behind a Service are reached
// by port-forwarding through the API server. A replica that does not answer is named, and
// takes nothing away from the answers of the others.
package replicas
