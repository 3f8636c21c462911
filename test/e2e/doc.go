// Package e2e answers "does mapd in a cluster do what a native API server
// does, and does it bear what happens to a cluster?" against real servers.
//
// The tests carry the build tag e2e. They start what they need, see package
// cluster, so
//
//	go test -tags e2e ./test/e2e/...
//
// is all there is to say; the first time it builds etcd, kube-apiserver and
// kubectl, which takes minutes, and servers/build.sh does only that.
package e2e
