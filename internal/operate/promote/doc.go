// Package promote answers one question: how does a policy of mapd become one of
// the API server, or the reverse, so that every request on the way is mutated?
//
// Decide looks at what is stored and says what to do next. It is pure: all that
// has to survive a crash stands in annotations of the stored objects, so that
// whoever calls it next, on whichever machine, goes on or back. A Promoter
// carries out what Decide says, and finds out what Decide asks: whether every
// API server runs the native policy, whether every replica runs mapd's, and
// whether they agree. Check says beforehand what would differ.
package promote
