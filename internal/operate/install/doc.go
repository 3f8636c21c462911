// Package install answers one question: what is mapd in a cluster made of, and
// how does it get in and out?
//
// Objects lists the objects, which are those of manifests/install.yaml. Apply
// writes them, Wait waits until they work, Probe shows that they do, and Uninstall
// takes them away in an order in which mapd cannot put back what was removed and
// nothing is blocked meanwhile.
//
// What mapd itself writes while it runs (the webhooks lists, its certificate, its
// lease) is not among the objects: it belongs to another field manager, and
// Uninstall removes it with what holds it.
package install
