// Package rbac answers one question: would these RBAC objects allow this?
//
// It is Kubernetes' RBAC authorizer over objects that are given instead of
// watched: additive rules, no deny, "no opinion" where no rule allows. A real
// server has more: its default ClusterRoles (cluster-admin, bound to the group
// system:masters, among them) and other authorizers such as Node. Only what is
// in the given objects is known here, so system:masters may nothing unless a
// ClusterRoleBinding says so.
package rbac
