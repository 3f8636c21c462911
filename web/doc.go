// Command web is mapd for a browser: it loads documents and evaluates objects,
// from JSON to JSON.
//
// Built with GOOS=js GOARCH=wasm (make web) it sets globalThis.mapd to an object
// with one function, evaluate, which takes a Question as JSON and returns an
// Answer as JSON. Built for any other system it reads a Question from standard
// input and prints the Answer, so that the two can be compared.
package main
