// Package bench answers one question: what is measured?
//
// It has the workloads of `make bench` as data, each with the answer that is
// right, and mapd's part of them. The program that puts Kubernetes and Gatekeeper
// beside mapd is in test/gatekeeper/bench, because only that module may import
// Gatekeeper; this package's own benchmarks are mapd's rows of its tables, and
// what `make bench-compare` runs on two commits.
package bench
