// Package suite answers one question: do these policies do what their author wrote
// down that they do?
//
// A suite is a file named mapd-test.yaml, a test of Kyverno's or a suite of gator's, with policies and cases: an object, who does
// what with it, and what is to become of it. Find finds the files of suites, Read reads
// them strictly, and Run runs their cases with the engine that serves. A suite's
// policies are compiled once for all its cases.
package suite
