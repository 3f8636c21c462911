// Package kubewarden answers one question: how is a policy of Kubewarden's written, and which
// requests does it match?
//
// Decode reads a ClusterAdmissionPolicy or an AdmissionPolicy of policies.kubewarden.io/v1, and
// returns its errors as api.Faults. Compile makes it a policy that the engine runs: its rules,
// selectors and conditions are those of a webhook, so pkg/binding and pkg/policy match it like
// any other policy, and its one mutation is what a Loader made of its module.
//
// The package runs no WebAssembly and downloads nothing, so that every build includes it; a
// Loader does that. Policy groups are rejected: they never mutate.
package kubewarden
