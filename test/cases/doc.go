// Package cases answers "what must a mutating admission policy do?" with
// examples: each is a txtar file that holds policies, a request and the wanted
// result, all in the form in which a user would write them.
//
// The same files are read by the tests of pkg/engine and by test/oracle, which
// runs them through the dispatcher inside k8s.io/apiserver. README.md describes
// the format.
//
// The package belongs to tests. It imports client-go for the Go types of the
// built-in kinds, so nothing under pkg/ may import it outside a test.
package cases
