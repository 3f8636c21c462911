// Package controllers answers one question: what does mapd write into the cluster, and which
// replica does it?
//
// The replica that holds the lease writes, and only while it holds it. It keeps the two
// webhook configurations equal to what the policies need, has the certificates
// maintained, and reports the state of each policy and binding in their status and in
// events. The state of Gatekeeper's mutators and expansion templates and of Kubewarden's
// policies goes into ConfigMaps and events, because their status belongs to others.
// Requests need none of this: while nobody holds the
// lease they are served as before, and the cluster does not follow changes.
package controllers
