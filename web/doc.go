// Command web is mapd for a browser: it evaluates objects, and says of policies what an
// editor wants to know, from JSON to JSON.
//
// Built with GOOS=js GOARCH=wasm (make web) it sets globalThis.mapd to an object with one
// function, call, which takes the name of a method and its parameter as JSON and returns a
// promise of the answer as JSON. Built for any other system it reads lines, each a name
// and a parameter, from standard input and prints the answers, so that the two can be
// compared. The types of api.go say what there is.
//
// A call leaves what it has read and compiled for the next one. Its answer does not depend
// on that.
package main
