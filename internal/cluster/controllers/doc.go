// Package controllers answers one question: what does mapd write into the cluster, and which
// replica does it?
//
// Only the replica that holds the lease writes, and only as long as it holds the lease. It keeps
// the two webhook configurations in line with what the policies need, runs the maintenance of
// certificates, and reports the state of each policy and binding in their status and in events.
// The state of Gatekeeper's mutators and expansion templates and of Kubewarden's policies goes
// into ConfigMaps and events, because their status belongs to Gatekeeper and Kubewarden. Requests
// do not depend on any of this: while no replica holds the lease, they are served as before, but
// webhook configurations and statuses are not updated.
//
// What the configurations contain is decided in internal/cluster/webhookconfig. Start reading at
// Writer.Run.
package controllers
