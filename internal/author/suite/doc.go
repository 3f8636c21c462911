// Package suite answers one question: do policies do what their author has written down in cases?
//
// A suite is a file named mapd-test.yaml, a test of Kyverno's or a suite of gator's, with
// policies and cases: an object, the request, and the expected result. Find finds the files of
// suites, Read reads them strictly, and Run runs their cases with the same engine as mapd serve.
// A suite's policies are compiled once for all its cases. Start reading at Run.
package suite
