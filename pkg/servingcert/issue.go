// Package servingcert answers one question: where does a server get its TLS certificate
// from?
//
// LoadKeyPair reads it from files that another program keeps up to date, and reads them again
// when they change. NewAuthority and NewLeaf make certificates. SelfSigned makes one for a
// process that stores nothing.
package servingcert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"time"
)

// Skew is how long before its creation a certificate begins to be valid: the clocks of machines
// differ by minutes.
const Skew = 5 * time.Minute

// Pair is a certificate with its key. The zero Pair has no certificate; the key is nil if it is
// lost.
type Pair struct {
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
}

// Served returns p in the form that tls.Config takes.
func (p Pair) Served() *tls.Certificate {
	return &tls.Certificate{Certificate: [][]byte{p.Cert.Raw}, PrivateKey: p.Key, Leaf: p.Cert}
}

// NewAuthority makes an authority that nobody trusts yet. Its name holds the time only
// so that people can tell authorities apart.
func NewAuthority(now time.Time, validity time.Duration) (Pair, error) {
	return issue(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "mapd authority " + now.UTC().Format(time.RFC3339)},
		NotBefore:             now.Add(-Skew),
		NotAfter:              now.Add(validity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}, Pair{})
}

// NewLeaf makes a serving certificate for hosts, which are names or addresses. It ends
// no later than its authority: nobody would trust it after that.
func NewLeaf(ca Pair, hosts []string, now time.Time, validity time.Duration) (Pair, error) {
	leaf := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "mapd"},
		NotBefore: now.Add(-Skew),
		NotAfter:  now.Add(validity),
		KeyUsage:  x509.KeyUsageDigitalSignature,
		// mapd presents the serving certificate to providers of external data too, as
		// Gatekeeper does.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if leaf.NotBefore.Before(ca.Cert.NotBefore) {
		leaf.NotBefore = ca.Cert.NotBefore
	}
	if leaf.NotAfter.After(ca.Cert.NotAfter) {
		leaf.NotAfter = ca.Cert.NotAfter
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	return issue(leaf, ca)
}

// issue signs template with ca, or with its own new key if ca is the zero Pair.
func issue(template *x509.Certificate, ca Pair) (Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return Pair{}, err
	}
	parent, signer := template, key
	if ca.Cert != nil {
		parent, signer = ca.Cert, ca.Key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return Pair{}, err
	}
	cert, err := x509.ParseCertificate(der)
	return Pair{cert, key}, err
}

// Encode returns certificates in PEM.
func Encode(certs ...*x509.Certificate) []byte {
	var text []byte
	for _, c := range certs {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return text
}

// selfSignedFor is how long a self-signed pair lasts. It lives in the memory of one
// process and is not replaced, so it must outlast the process.
const selfSignedFor = 10 * 365 * 24 * time.Hour

// SelfSigned makes an authority and a serving certificate for hosts, which are names or
// addresses. It drops the authority's key: nobody can make another certificate with it.
// caPEM is what clients have to trust, such as the caBundle of a webhook's configuration.
func SelfSigned(hosts []string) (cert tls.Certificate, caPEM []byte, err error) {
	if len(hosts) == 0 {
		return cert, nil, errors.New("a self-signed certificate needs a host")
	}
	now := time.Now()
	ca, err := NewAuthority(now, selfSignedFor)
	if err != nil {
		return cert, nil, err
	}
	leaf, err := NewLeaf(ca, hosts, now, selfSignedFor)
	if err != nil {
		return cert, nil, err
	}
	return *leaf.Served(), Encode(ca.Cert), nil
}
