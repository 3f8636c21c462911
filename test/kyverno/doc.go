// Package kyverno answers one question: what does Kyverno do to an object?
//
// Kyverno is here itself: the engine that its webhook mutates with, at the version of
// go.mod, behind a harness that does the little which the webhook does around it. What mapd
// makes of Kyverno's policies is held against it: the case files of test/cases/kyverno and
// random objects.
//
// It is a module of its own, so that Kyverno, and what that needs, is no dependency of mapd.
package kyverno
