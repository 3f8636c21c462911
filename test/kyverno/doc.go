// Package kyverno answers one question: do the policies that mapd writes for Kyverno's do to an
// object what Kyverno does?
//
// Kyverno is the program in engine, a module of its own: the engine that its webhook mutates
// with, at version 1.19.1. The tests build it, ask it, and hold mapd's engine with the converted
// policies against the answers. The inputs are the case files of test/cases/kyverno and random
// objects for their policies; MAPD_KYVERNO_POLICIES names a directory with more policies.
//
// It is a module of its own, so that go test ./... does not build Kyverno.
package kyverno
