// Package certs answers two related questions: which certificate does mapd serve, and which
// authorities must API servers trust?
//
// There are two sources. Issuer issues certificates by an authority of its own, and stores both
// in a Secret, which every replica reads; the replica that holds the lease renews and rotates
// them. Files reads them from files that somebody else, such as cert-manager, maintains.
//
// Both guarantee that API servers trust the certificate that is served. A new authority is
// announced to them before it signs what is served, and an old one stays trusted until no
// certificate of it can be served any more.
//
// The Secret has, in PEM: tls.crt and tls.key, the certificate that is served; ca.crt and ca.Key,
// the authority that signed it; ca-next.crt and ca-next.Key, the next authority during a
// rotation; and ca-bundle.crt, all authorities to trust. rotation.json says until when the
// certificates of each authority are valid. Setting the annotation mapd.dev/rotate to a new value
// replaces the authority. The old one stays in ca-bundle.crt until its last certificate has
// expired; to distrust it earlier, remove it from ca-bundle.crt by hand after the new one has
// begun to sign. If the Secret is deleted or damaged, the running replicas restore it; without
// running replicas, everything is made anew.
//
// Log lines and errors never contain a key, or anything read from a Secret that may be a key.
// Start reading at Source; step.go decides about rotation.
package certs
