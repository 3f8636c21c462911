// Package gatekeeper answers one question: does mapd do to an object what
// Gatekeeper does?
//
// Gatekeeper is here itself: the packages that its webhook mutates with, at the
// version of go.mod, behind a harness that does the little which the webhook does
// around them. The recordings in testdata, made from Gatekeeper at another place
// and time, prove the harness. Everything else is held against it: the direct
// interpreter, the engine with a Set of mutators, and the native policies, which
// run in mapd and in the dispatcher of Kubernetes. The inputs are the recorded
// cases, mutators that people use on the objects that belong to them, the case
// files of test/cases/gatekeeper, and random sets of random mutators.
//
// It is a module of its own, so that Gatekeeper, and what that needs, is no
// dependency of mapd. It is one module and not two that talk to each other, since
// Gatekeeper's mutation compiles with the versions that mapd has of everything
// they share. go.mod keeps these the same, so what make test has built of them is
// not built again. Only Gatekeeper's mutation packages are imported: its webhook
// would bring in the manager, the constraint framework and most of OPA.
package gatekeeper
