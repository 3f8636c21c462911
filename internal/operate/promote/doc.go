// Package promote answers one question: how does a policy move from mapd to the API servers, or
// back, so that every request meanwhile is mutated?
//
// Decide looks at the stored objects and returns the next step. It is pure: everything that has
// to survive a crash is in annotations of the stored objects, so that any later call, on any
// machine, can continue or go back. A Promoter executes the steps, and finds out what Decide has
// to know: whether every API server runs the native policy, whether every replica runs mapd's,
// and whether they agree. Check predicts differences. Start reading at Decide.
package promote
