package certs

import "crypto/tls"

// Source is where a server gets its certificate from, and a writer of webhook
// configurations what to put into their caBundle.
type Source interface {
	// GetCertificate returns the certificate to serve, for tls.Config.
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Bundle is what has to be trusted, in PEM; empty if there is nothing yet.
	Bundle() []byte
	// Check says why there is no certificate that clients would accept.
	Check() error
	// Changed returns a channel of the caller's own that has a value after
	// the certificate or the bundle has changed; several changes may be one value.
	Changed() <-chan struct{}
}

var (
	_ Source = (*Issuer)(nil)
	_ Source = (*Files)(nil)
)
