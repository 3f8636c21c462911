// Package next answers one question: what does the next minor of Kubernetes do otherwise?
//
// It runs test/oracle, which is the dispatcher inside k8s.io/apiserver, with the libraries of
// the next minor that go.mod beside this file names, on the cases of test/cases about that
// minor. What its server's language has is recorded in pkg/cel/testdata.
//
// It is a module of its own, because these libraries need a newer Go than mapd does, and
// another major of structured-merge-diff: hack/next.sh, which `make next` runs, replaces the
// number in pkg/openapi/smd while it builds. docs/reference/next-minor.md is the procedure.
package next
