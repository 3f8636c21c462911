// Package bench asks "what does a policy cost whoever creates a Pod?": create with
// dryRun through a real API server, without policies, with webhooks written by hand
// (what no webhook can avoid), with policies that the server runs itself, and with
// mapd.
//
//	go test -tags e2e ./test/e2e/bench -bench .
//
// is what make bench-e2e does. It prints a table and fails if an answer is wrong; a
// goal that is missed does not fail it.
package bench
