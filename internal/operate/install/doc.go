// Package install answers one question: of which objects does mapd in a cluster consist, and how
// are they installed and removed?
//
// Objects returns the objects of manifests/install.yaml. Apply writes them, Wait waits until they
// work, Probe shows that they do, and Uninstall removes them. It does so in an order in which
// mapd cannot restore what was removed, and in which no requests are blocked meanwhile.
//
// Objects that mapd itself writes while it runs (the webhook lists, its certificate, its lease)
// are not among them: they belong to another field manager, and Uninstall removes them with the
// objects that contain them. Start reading at Apply and Uninstall.
package install
