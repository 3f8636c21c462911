// Package oracle answers "what would Kubernetes do?" by running the mutating
// dispatcher of k8s.io/apiserver in process: no API server, no etcd, but the
// compiler, the matcher, the patchers and both passes that a server uses.
//
// What it does not have is what the server keeps outside of that library:
// defaulting of built-in kinds and the conversion between their versions. A
// case that turns on one of these is marked "skip: oracle".
//
// Kubernetes leaves the order of policies, bindings and parameters to chance.
// The oracle sorts them by name, which is one of the outcomes a server may
// produce, and the one that mapd always produces.
//
// The package belongs to tests and benchmarks: it imports client-go.
package oracle
