// Package watch answers one question: what does the cluster hold of a resource
// right now?
//
// A Mirror holds what its owner keeps of every object of a resource, an Object one
// object by its name. Both list and watch until their context ends, retry soon after a
// failure, and log a failure once for as long as it stays the same. A Mirror can follow
// a kind that the server may or may not serve: it reads while the server serves the
// kind, and is empty while it does not.
//
// Health says what a replica that is cut off from the API server no longer reads.
//
// Signal and Listeners carry the news from goroutine to goroutine.
package watch
