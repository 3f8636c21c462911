// Package bench has the workloads of `make bench`, each with the correct result, and the code that
// measures mapd with them.
//
// The program that also measures Kubernetes and Gatekeeper is in test/gatekeeper/bench, because
// only that module may import Gatekeeper. The benchmarks of this package are mapd's rows in the
// tables of that program, and what `make bench-compare` runs on two commits.
package bench
