// Package policy answers one question: what does a policy of Kyverno say about mutation?
//
// It reads ClusterPolicy and Policy (kyverno.io), and MutatingPolicy and NamespacedMutatingPolicy
// (policies.kyverno.io), strictly: for a field that Kyverno does not have, the error suggests the
// nearest one that it has. Rules that validate, generate or verify images are counted, but their
// content is not read. The package does not know what a policy does to an object: convert and
// interpret do. Start with Read.
package policy
