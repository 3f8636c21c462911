// Package modulepolicies runs Kubewarden's policies that are stored in a cluster: it has
// their WebAssembly modules loaded, and decides the reviews of their own webhook entries.
// It is a feature of `mapd serve` (internal/cluster/feature).
//
// What a policy says is read in pkg/kubewarden, and modules are fetched and run in
// internal/kubewarden. Start reading at Feature.Update.
package modulepolicies
