// Package writer answers one question: what does mapd write into the cluster,
// and which replica does it?
//
// The replica that holds the lease does, and only while it holds it. It keeps
// the two webhook configurations what the policies make them, has the
// certificates maintained, and says in status and events what became of each
// policy and binding. What became of Gatekeeper's mutators is said in a ConfigMap
// and events: their status belongs to Gatekeeper. Requests are answered without any of this: a cluster
// whose lease nobody holds is served as before, it only does not follow changes.
package writer
