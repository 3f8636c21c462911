// Package scale runs a cluster of many nodes and Pods with mapd in it, breaks parts of it,
// and writes down what that did: `make scale-cluster`. docs/operate/scale.md has what came
// of it, package result how it is read.
//
// kube-apiserver, etcd, kube-controller-manager and kube-scheduler are real; KWOK plays the
// kubelets. Deployments, ReplicaSets and Pods that the cluster begins with are written to
// etcd, all that comes later goes through an API server. In the phases of a run the cluster
// has no policies, native ones, the same ones of mapd, and these with a schedule of faults.
//
// Every accepted write of the program's own is read again before it is deleted, and held
// against what package pkg/mapd makes of it. What controllers have created is held against
// that too: applied to it, the policies must change nothing.
package scale
