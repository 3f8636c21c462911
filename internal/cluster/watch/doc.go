// Package watch answers one question: which objects of a resource does the cluster have now?
//
// A Mirror has a reduced form of every object of a resource, an Object has one object by its
// name. Both list and watch until their context ends, retry soon after a failure, and log a
// failure once for as long as it stays the same. A Mirror can follow a kind that the server may
// or may not serve: it reads while the server serves the kind, and is empty otherwise.
//
// Health reports whether the API server answers, and which resources are not being read. Signal
// and Listeners notify other goroutines of changes. Start reading at Mirror.
package watch
