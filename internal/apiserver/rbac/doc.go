// Package rbac answers one question: would these RBAC objects allow this?
//
// It is Kubernetes' RBAC authorizer for objects that are given instead of
// watched: rules add up, nothing denies, and there is "no opinion" where no
// rule allows. A real server has more: its default ClusterRoles (cluster-admin
// among them, bound to the group system:masters) and other authorizers such as
// Node. This package knows the given objects only, so system:masters has no
// rights unless a ClusterRoleBinding gives them.
package rbac
