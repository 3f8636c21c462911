// Package certs answers two questions that belong together: which certificate
// do we serve, and whom must the API server trust?
//
// There are two sources. Manager keeps an authority of its own and what it has
// signed in one Secret, from which every replica takes them; one replica at a
// time, told so by a lease, renews and rotates them. Files takes all from files
// that somebody else, such as cert-manager, looks after.
//
// Both hold to one promise: what is served is trusted. Whatever replaces an
// authority is made known to the API servers first, and the replaced one stays
// known until nothing that it signed can be served any more.
//
// No key, and nothing read from a Secret that might be one, is in any log line
// or error.
package certs
