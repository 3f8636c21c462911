// Package certs answers two questions that belong together: which certificate
// do we serve, and which authorities must the API server trust?
//
// There are two sources. Issuer keeps an authority of its own and what it has
// signed in one Secret, from which every replica takes them; the replica
// that holds the lease renews and rotates them. Files takes all from files
// that somebody else, such as cert-manager, looks after.
//
// Both hold to one promise: what is served is trusted. Whatever replaces an
// authority is made known to the API servers first, and the replaced one stays
// known until nothing that it signed can be served any more.
//
// The Secret holds, in PEM, tls.crt and tls.key, which are served; ca.crt and
// ca.Key, which signed them; ca-next.crt and ca-next.Key while the authority is
// being replaced; ca-bundle.crt, all that has to be trusted; and in
// rotation.json until when each authority has signed. Setting the annotation
// mapd.dev/rotate to any new value replaces the authority. The old one stays in
// ca-bundle.crt until its last certificate has ended; who has reason to be
// quicker takes it out of there by hand after the new one has begun to sign. A
// Secret that was deleted or damaged is restored by the replicas that run; only
// if there are none is everything made anew.
//
// No key, and nothing read from a Secret that might be one, is in any log line
// or error.
package certs
