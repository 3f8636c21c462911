package certs

import "crypto/tls"

// Source provides the certificate that a server serves, and the authorities that the caBundle of
// webhook configurations needs.
type Source interface {
	// GetCertificate returns the certificate to serve, for tls.Config.
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Bundle returns the authorities to trust, in PEM; empty if there are none yet.
	Bundle() []byte
	// Check returns an error if there is no certificate that clients would accept.
	Check() error
	// Changed returns a new channel for the caller. It receives a value after the certificate or
	// the bundle has changed; several changes may be one value.
	Changed() <-chan struct{}
}

var (
	_ Source = (*Issuer)(nil)
	_ Source = (*Files)(nil)
)
