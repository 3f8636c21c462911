// Package memory answers "is there room for this request to go on?".
//
// A Budget bounds the memory that requests hold together. Each request has an
// Account, which it charges before it allocates: the body while it is read, trees
// while they are decoded, results while they are computed. A refused charge is an
// *Error, which says whether the request can never fit or only not now.
//
// What an Account held counts until the garbage collector has freed it. The memory of a request
// is still in use for a while after its end, so a hundred requests in quick succession need it
// a hundred times.
//
// The package knows nothing of admission and imports the standard library only.
package memory
