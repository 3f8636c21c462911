package api

// ExemptNamespaces are the namespaces, besides its own, in which mapd changes nothing by
// default, because the control plane must start without it.
func ExemptNamespaces() []string { return []string{"kube-system", "kube-node-lease"} }
