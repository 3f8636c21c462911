// Package workloads answers one question: what will admission do to the objects that a workload
// of the cluster creates? It warns the users who write the workload. It is a feature of `mapd
// serve` (internal/cluster/feature).
//
// Which objects a workload creates, and what happens to them, is decided in
// internal/workloads/expansion. Start reading at Feature.Update.
package workloads
