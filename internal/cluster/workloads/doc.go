// Package workloads finds out, in a cluster, what admission will make of the objects that
// workloads create, and warns those who write the workloads. It is a feature of `mapd serve`
// (internal/cluster/feature).
//
// What a workload creates and what becomes of it is decided in internal/workloads/expansion.
// Start reading at Feature.Update.
package workloads
