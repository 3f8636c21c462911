// Package blame answers one question: who wrote this field of this object?
//
// Each answer is a Line, which names its source: a record of a replica of mapd, the object's
// managedFields, an evaluation of the present policies, or the API server's audit log. Lines have
// paths and names, and never a value.
//
// Start reading at Line; record.go, managed.go, again.go and log.go read the four sources.
package blame
