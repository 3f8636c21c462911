package externaldata

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mapd-project/mapd/pkg/legacy"
)

// maxTimeout bounds one call, even if the Provider's timeout is longer.
const maxTimeout = 5 * time.Second

// timeoutOf returns the timeout of calls to a provider.
func timeoutOf(p *legacy.Provider) time.Duration { return min(p.Timeout, maxTimeout) }

// DecodeProvider reads a Provider, as legacy.DecodeProvider does, and the certificates
// of its caBundle.
func DecodeProvider(u *unstructured.Unstructured) (*legacy.Provider, error) {
	return legacy.DecodeProvider(u, checkAuthorities)
}

// checkAuthorities checks the first block of the bundle as Gatekeeper does, and then the whole
// bundle as Gatekeeper's client does.
func checkAuthorities(bundle, first []byte) error {
	if _, err := x509.ParseCertificate(first); err != nil {
		return fmt.Errorf("failed to parse caBundle: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(bundle) {
		return errors.New("caBundle has no block of the type CERTIFICATE")
	}
	return nil
}
