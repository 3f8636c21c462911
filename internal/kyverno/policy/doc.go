// Package policy answers one question: what does a policy of Kyverno say about mutation?
//
// It reads ClusterPolicy and Policy (kyverno.io), and MutatingPolicy and
// NamespacedMutatingPolicy (policies.kyverno.io), strictly: a field that Kyverno does not have
// is an error with the nearest one that it has. It does not say what the policy does to an
// object. Rules that validate, generate or verify images are counted, and their content is not
// read. Start with Read.
package policy
