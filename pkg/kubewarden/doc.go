// Package kubewarden answers one question: how is a policy of Kubewarden's written,
// and which requests does it meet?
//
// Decode reads a ClusterAdmissionPolicy or an AdmissionPolicy of
// policies.kubewarden.io/v1, and everything that is wrong with it comes as api.Faults.
// Compile makes it a policy as the engine runs it: its rules, selectors and conditions
// are those of a webhook, so pkg/binding and pkg/policy match it as they match any
// other policy, and its one mutation is what a Loader made of its module.
//
// The package runs no WebAssembly and fetches nothing, so that it is part of every
// build; a Loader does that. Policy groups are refused: they never mutate.
package kubewarden
