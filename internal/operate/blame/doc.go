// Package blame answers one question: who wrote this field of this object?
//
// Each answer is a Line, which says where it is from: a record that a replica of mapd
// kept, the object's managedFields, an evaluation of the policies as they are now, or the
// API server's audit log (AuditLog). Lines have paths and names, and never a value.
package blame
