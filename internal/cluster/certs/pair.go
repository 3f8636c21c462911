package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/mapd-project/mapd/pkg/servingcert"
)

// pair is a certificate with its key. The zero pair has no certificate; a pair whose key was lost
// has no key.
type pair = servingcert.Pair

// usable reports whether p can be used at now.
func usable(p pair, now time.Time) bool { return p.Cert != nil && p.Key != nil && valid(p.Cert, now) }

func valid(c *x509.Certificate, now time.Time) bool {
	return !now.Before(c.NotBefore) && !now.After(c.NotAfter)
}

func same(a, b *x509.Certificate) bool { return a != nil && b != nil && bytes.Equal(a.Raw, b.Raw) }

func contains(cs []*x509.Certificate, c *x509.Certificate) bool {
	for _, other := range cs {
		if same(other, c) {
			return true
		}
	}
	return false
}

// fingerprint identifies a certificate in stored data and logs.
func fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:8])
}

// hosts returns the names and addresses for which c is valid.
func hosts(c *x509.Certificate) []string {
	all := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	return all
}

// covers reports whether have contains everything in want.
func covers(have, want []string) bool {
	normal := func(host string) string {
		if ip := net.ParseIP(host); ip != nil {
			return ip.String()
		}
		return host
	}
	for _, w := range want {
		if !slices.ContainsFunc(have, func(h string) bool { return normal(h) == normal(w) }) {
			return false
		}
	}
	return true
}

// issuer returns the certificate in cas that signed c; nil if none did.
func issuer(c *x509.Certificate, cas []*x509.Certificate) *x509.Certificate {
	for _, ca := range cas {
		if c != nil && c.CheckSignatureFrom(ca) == nil {
			return ca
		}
	}
	return nil
}

// trusted reports whether a client that trusts cas accepts leaf at now.
func trusted(leaf *x509.Certificate, cas []*x509.Certificate, now time.Time) bool {
	if leaf == nil {
		return false
	}
	roots := x509.NewCertPool()
	for _, ca := range cas {
		if ca != nil {
			roots.AddCert(ca)
		}
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now})
	return err == nil
}

// parseCert parses one certificate, and parseKey its key. Their errors have our own text, because
// the text of a parser may quote its input.
func parseCert(text []byte) (*x509.Certificate, error) {
	certs, err := parseCerts(text)
	if err != nil {
		return nil, err
	}
	return certs[0], nil
}

func parseCerts(text []byte) ([]*x509.Certificate, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("is missing")
	}
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errors.New("holds something that is not a certificate")
		}
		if !contains(certs, cert) {
			certs = append(certs, cert)
		}
	}
	if len(certs) == 0 {
		return nil, errors.New("holds no certificate")
	}
	return certs, nil
}

func parseKey(text []byte, cert *x509.Certificate) (*ecdsa.PrivateKey, error) {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil, errors.New("is missing")
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("holds no key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("holds something that is not a key in PKCS #8")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, errors.New("holds a key of another kind than ECDSA")
	}
	if cert != nil && !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("is not the key of the certificate beside it")
	}
	return key, nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}
