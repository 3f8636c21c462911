// Command web is mapd for a browser: it evaluates objects, and answers an editor's questions about
// policies. Questions and answers are JSON.
//
// Built with GOOS=js GOARCH=wasm (make web) it sets globalThis.mapd to an object with one
// function, call, which takes the name of a method and its parameter as JSON and returns a
// promise of the answer as JSON. Built for any other system it reads lines, each a name
// and a parameter, from standard input and prints the answers, so that the results of the two
// programs can be compared. api.go has the types of the parameters and answers.
//
// A call reuses what earlier calls have read and compiled. Its answer does not depend on that.
package main
